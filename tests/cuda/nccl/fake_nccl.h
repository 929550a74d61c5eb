// NCCL for ranks that are threads of one process, as a library of its own. It moves real bytes, in
// the order of the streams, is as late as NCCL may be (a group is in its stream only once
// ncclCommGetAsyncError has said so), and notes every wrong use.
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

/// What the fake needs of the device.
struct FakeDevice {
  std::function<void(void* stream, std::function<bool()> ready, std::function<void()> run)> enqueue;
  std::function<void(void* to, const void* from, size_t size)> copy;
};

/// The fake's control, which the library exports as fake_nccl().
class FakeNccl {
 public:
  /// Forgets plans, notes and messages. All communicators must be gone.
  virtual void reset(FakeDevice device) = 0;
  virtual void set_version(int version) = 0;

  /// The `nth` call of that name from now on, by any rank, returns `result` and does nothing.
  virtual void fail(const std::string& call, int nth, int result) = 0;
  /// From the `nth` group on, groups of that rank never get into their streams.
  virtual void stall(int rank, int nth) = 0;
  /// ncclCommGetAsyncError of that rank tells `result` from now on.
  virtual void async_error(int rank, int result) = 0;
  /// From now on what is in streams does not end.
  virtual void hang() = 0;
  /// ncclCommAbort and ncclCommDestroy return only after release().
  virtual void stick() = 0;
  virtual void release() = 0;

  /// "0 ncclSend 12 bytes to 1": the rank, and the call.
  virtual std::vector<std::string> log(int rank) = 0;
  /// Uses that NCCL forbids: calls of a communicator that is gone, busy or in use by another
  /// thread, groups that are not closed.
  virtual std::vector<std::string> violations() = 0;
  /// Communicators that are neither destroyed nor aborted.
  virtual int alive() = 0;

 protected:
  ~FakeNccl() = default;
};

extern "C" FakeNccl* fake_nccl();
