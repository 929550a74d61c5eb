// Messages between this process and the others of its group, through Gloo.
#pragma once
#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "halftape/distributed/engine/engine.h"

namespace halftape::distributed {

/// Gloo's sentence without the place in its sources.
std::string sentence(const std::exception& e);

/// When a call gives up.
struct Deadline {
  explicit Deadline(milliseconds timeout);
  milliseconds left() const;  // at least 1
  bool is_over() const { return std::chrono::steady_clock::now() >= until; }

  milliseconds timeout;
  std::chrono::steady_clock::time_point until;
};

/// Connections to all other ranks. When one breaks, Gloo wakes who waits for a message that has not
/// begun, but not who waits for one in its midst (Pair::signalException() passes over those). So
/// for every peer there is a receipt that never ends, which Gloo does fail, and a thread that looks
/// after the one of the peer that is waited for.
class Wire {
 public:
  explicit Wire(std::shared_ptr<gloo::Context> context);
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  int rank() const { return context_->rank; }
  int size() const { return context_->size; }

  /// A message under way, to or from `peer`.
  struct Transfer {
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer;  // null for a message of 0 bytes
    int peer = 0;
    bool is_send = false;
  };
  /// Begin a message. Those of one pair that have the same tag and size meet, in the order in which
  /// they begin. Throw Error if the connection is lost.
  Transfer send(int peer, const void* bytes, size_t size, uint64_t tag);
  Transfer receive(int peer, void* bytes, size_t size, uint64_t tag);
  /// Waits for the end of a message. Throws Error when the time is over or the connection is lost,
  /// and after close(). One thread at a time.
  void finish(Transfer& transfer, const Deadline& deadline);
  /// Closes the connections, so that every message, here and at the peers, fails. From any thread.
  void close() noexcept;

 private:
  Transfer begin(int peer, void* bytes, size_t size, uint64_t tag, bool is_send);
  bool wait(const Transfer& transfer, milliseconds timeout);
  bool is_lost(int peer);
  void watch();

  const std::shared_ptr<gloo::Context> context_;
  std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>> endless_;  // by peer
  char nothing_ = 0;  // where the endless ones would put their byte
  // The last ones. To end a buffer while Gloo's thread is still about to let go of it is to wait in
  // a loop, which keeps that thread from a processor.
  std::deque<std::unique_ptr<gloo::transport::UnboundBuffer>> finished_;
  std::atomic<bool> closed_{false};

  std::mutex mutex_;
  std::condition_variable changed_;
  const Transfer* awaited_ = nullptr;
  bool asleep_ = false, ends_ = false;  // of the thread
  std::thread watcher_;
};

}  // namespace halftape::distributed
