#include "halftape/optim/worker.h"

#include <atomic>
#include <utility>

namespace halftape::optim {
namespace {
std::atomic<MeetingHook> meeting_hook{nullptr};
}

MeetingHook set_meeting_hook(MeetingHook hook) { return meeting_hook.exchange(hook); }
void detail::meet(Meeting point) {
  if (const MeetingHook hook = meeting_hook.load(std::memory_order_acquire)) hook(point);
}

void Fence::raise() const {
  {
    const std::lock_guard lock(state_->mutex);
    state_->raised = true;
  }
  state_->changed.notify_all();
}

void Fence::wait() const {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->raised; });
}

bool Fence::raised() const {
  const std::lock_guard lock(state_->mutex);
  return state_->raised;
}

Worker::~Worker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Worker::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !task_; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Worker::start(std::function<void()> task) {
  wait();
  {
    const std::lock_guard lock(mutex_);
    task_ = std::move(task);
  }
  changed_.notify_all();
}

void Worker::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || task_; });
    if (!task_) return;
    std::exception_ptr error;
    lock.unlock();
    try {
      task_();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    // The task's captures go before anybody hears that it is done.
    task_ = nullptr;
    error_ = error;
    changed_.notify_all();
  }
}

}  // namespace halftape::optim
