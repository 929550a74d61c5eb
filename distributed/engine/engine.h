// The contract of an engine: how bytes travel between the processes of a group. An engine moves
// bytes and computes nothing; sums are Halftape's own, so that they have the same bits with every
// engine. Each engine is a library of its own, found at run time (engine/loader.h).
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "halftape/core/device.h"
#include "halftape/core/dtype.h"
#include "halftape/distributed/store/store.h"

namespace halftape::distributed {

/// How all_reduce and reduce_scatter combine elements. Avg is the sum divided by the size of the
/// group.
enum class ReduceOp : uint8_t { Sum, Avg, Product, Min, Max };
/// "sum".
const char* to_string(ReduceOp op);

/// One message between this rank and a peer.
struct Message {
  int peer;              // another rank
  void* bytes;           // of this process
  size_t size;           // in bytes; equal on both sides
  Dtype dtype = kUInt8;  // as the other side has it, or they do not meet where the engine can tell
};

/// What an engine is made of.
struct EngineSetup {
  int rank, size;
  Store* store;          // the engine's own keys alone; lives only during the call
  milliseconds timeout;  // of the meeting
  std::string host;      // this machine's address as others reach it; empty: the engine finds it
  int local_rank = 0;    // among the processes of this machine: which GPU is this one's
};

class Engine {
 public:
  virtual ~Engine() = default;
  /// "gloo".
  virtual const char* name() const = 0;
  /// Whether messages may lie in the memory of that kind of device.
  virtual bool reaches(DeviceType device) const = 0;
  /// Where bytes travel that lie on another kind of device; of that kind, the only one.
  virtual Device device() const { return kCPU; }
  /// Sends and receives all of the messages, at most one each way for a peer. A message of 0 bytes
  /// is not sent. Returns once the received ones are here and the sent ones may be overwritten; for
  /// a GPU, once that is in the device's current stream. `tag` is the same on all ranks, and no two
  /// exchanges have the same; tag >> 24 numbers the collective call, from 1. Messages whose tags
  /// differ do not meet. One call at a time. Throws Error after the timeout, and when a peer is
  /// gone; the engine is then of no further use.
  virtual void exchange(std::span<const Message> sends, std::span<const Message> receives,
                        uint64_t tag, milliseconds timeout) = 0;
  /// Replaces `count` elements by the sum over all ranks, in an order and with roundings of the
  /// engine's own, equal on all ranks. False, with nothing done, where it has none for that dtype
  /// and operation.
  virtual bool all_reduce(void* elements, int64_t count, Dtype dtype, ReduceOp op, uint64_t tag,
                          milliseconds timeout) = 0;
  /// True if calls return before the device has done them, in the order of its current stream. They
  /// then come from the thread that makes the collective call, and may be captured by a Graph. What
  /// fails on the device is thrown by a later call.
  virtual bool queues() const { return false; }
  /// Throws what has failed by now, for a host that has waited for such a call's results.
  virtual void check() const {}
  /// Makes the running call and all later ones throw Error soon. From any thread.
  virtual void abort() noexcept = 0;
};

/// What an engine's library exports, with C names: halftape_<name>_version and
/// halftape_<name>_open.
inline constexpr int kEngineVersion = 2;
// Raise it with each change of what passes between the libraries.
static_assert(sizeof(void*) != 8 || sizeof(Message) == 32, "a layout needs a version of its own");
/// Null, with the reason, if the engine does not start here.
using OpenEngine = Engine*(const EngineSetup& setup, std::string* why_not);
using EngineVersion = int();

}  // namespace halftape::distributed
