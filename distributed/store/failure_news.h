// What a watch has noticed, kept until a group listens.
#pragma once
#include <functional>
#include <mutex>
#include <string>
#include <utility>

namespace halftape::distributed {

/// Carries the first failure from the thread that notices it to the one who acts on it.
class FailureNews {
 public:
  /// Called by the watch.
  void tell(const std::string& failure) {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) return;
    failure_ = failure;
    if (listener_) listener_(failure_);
  }
  /// Calls the listener with the failure, now or once there is one; empty: nobody listens any more,
  /// and no call runs.
  void listen(std::function<void(const std::string&)> listener) {
    const std::lock_guard lock(mutex_);
    listener_ = std::move(listener);
    if (listener_ && !failure_.empty()) listener_(failure_);
  }

 private:
  std::mutex mutex_;
  std::string failure_;
  std::function<void(const std::string&)> listener_;
};

}  // namespace halftape::distributed
