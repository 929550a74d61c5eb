// Which calls have not ended on the GPU in time.
#pragma once
#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "halftape/core/device.h"
#include "halftape/cuda/cuda.h"
#include "halftape/distributed/store/store.h"

namespace halftape::distributed::nccl {

/// The calls that are on their way, oldest first: each has an event behind it. Not thread-safe.
class CallsUnderWay {
 public:
  struct Call {
    const char* what;  // "all_reduce"
    uint64_t number, bytes;
    milliseconds timeout;
  };

  explicit CallsUnderWay(Device device) : device_(device) {}
  /// Adds the call that the current stream has just got.
  void add(const Call& call);
  /// Forgets those that have ended. Throws Error if the device is broken.
  void forget_ended();
  bool empty() const { return all_.empty(); }
  void clear() { all_.clear(); }
  /// A sentence about the oldest one, if its time is up; else empty.
  std::string overdue() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct UnderWay {
    Call call;
    cuda::Event end;
  };
  Device device_;
  std::deque<UnderWay> all_;
  Clock::time_point oldest_since_;  // it is the oldest
  std::vector<cuda::Event> spare_;
};

}  // namespace halftape::distributed::nccl
