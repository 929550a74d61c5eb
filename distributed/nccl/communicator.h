// One rank's end of an NCCL communicator, of which no call waits without limit.
#pragma once
#include <atomic>
#include <functional>
#include <mutex>
#include <string>

#include "halftape/core/device.h"
#include "halftape/distributed/engine/engine.h"
#include "halftape/distributed/nccl/nccl_library.h"

namespace halftape::distributed::nccl {

/// group() is called by one thread at a time, all else by any.
class Communicator {
 public:
  /// Meets the other ranks by way of setup.store: rank 0 writes the communicator's id there. The
  /// GPU becomes this thread's current one. Throws Error after setup.timeout.
  Communicator(const EngineSetup& setup, Device device);
  /// Waits for up to 5 s, or setup.timeout if that is less, until all ranks have come here, then
  /// aborts.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  const Library& library() const { return nccl_; }

  /// Makes `calls` one group, and returns once it is in its stream: at once, but for the first
  /// group with a peer, which connects. `calls` returns the first failure. Throws Error if a call
  /// fails or the timeout passes, and for all later calls; the communicator is then aborted.
  void group(const char* what, const std::function<ncclResult_t(ncclComm_t)>& calls,
             milliseconds timeout);
  /// What NCCL has noticed by itself, such as a peer that is gone; empty if nothing. Not while
  /// group() runs, which asks for itself.
  std::string noticed();
  /// Ends what runs on the device, and all later calls with this reason; the first one counts.
  void fail(std::string why) noexcept;
  bool failed() const { return failed_; }
  /// Throws the reason, if it has failed.
  void check() const;

 private:
  void meet(const EngineSetup& setup);
  ncclResult_t settled(ncclResult_t result, milliseconds timeout);
  void end(ncclResult_t (*by)(ncclComm_t)) noexcept;

  const Library nccl_;
  const Device device_;
  const std::string me_;  // "rank 1 of 4 on cuda:1"
  const milliseconds to_end_;
  std::atomic<ncclComm_t> comm_{nullptr};
  std::mutex inside_;                  // NCCL wants one thread at a time
  std::atomic<bool> in_group_{false};  // it polls, and nobody else should
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;  // of the reason
  std::string why_;
};

}  // namespace halftape::distributed::nccl
