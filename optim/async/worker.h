// The thread of an AsyncOptimizer; internal.
#pragma once
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "halftape/core/machine/flush_denormal.h"
#include "halftape/core/start_thread.h"
#include "halftape/optim/async/async_optimizer.h"

namespace halftape::optim {

/// A thread that runs one task at a time beside its owner's.
class AsyncOptimizer::Worker {
 public:
  Worker()
      : thread_(halftape::detail::start_thread("AsyncOptimizer: its thread", [this] { serve(); })) {
  }
  /// Waits for the running task; an exception that wait() did not fetch is lost.
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  /// Waits for the running task, if there is one; throws what the last task threw, once.
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !task_; });
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }
  /// wait(), then starts `task`; does not start it when wait() throws.
  void start(std::function<void()> task) {
    wait();
    {
      const std::lock_guard lock(mutex_);
      task_ = std::move(task);
      flush_ = halftape::detail::flush_bits();
    }
    changed_.notify_all();
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stopping_ || task_; });
      if (!task_) return;
      std::exception_ptr thrown;
      lock.unlock();
      try {
        const halftape::detail::FlushAs caller(flush_);
        task_();
      } catch (...) {
        thrown = std::current_exception();
      }
      lock.lock();
      // Destroys the task's captures before wait() can return.
      task_ = nullptr;
      error_ = thrown;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> task_;  // empty: idle
  uint32_t flush_ = 0;          // of the thread that started it
  std::exception_ptr error_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the others from its first moment
};

}  // namespace halftape::optim
