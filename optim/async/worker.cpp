#include "halftape/optim/async/worker.h"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

namespace halftape::optim {
namespace {
std::atomic<MeetingHook> meeting_hook{nullptr};
}

MeetingHook set_meeting_hook(MeetingHook hook) { return meeting_hook.exchange(hook); }
void detail::meet(Meeting point) {
  if (const MeetingHook hook = meeting_hook.load(std::memory_order_acquire)) hook(point);
}

struct Worker::State {
  State() : thread([this] { serve(); }) {}
  void serve();

  std::mutex mutex;
  std::condition_variable changed;
  std::function<void()> task;  // empty: idle
  std::exception_ptr error;
  bool stopping = false;
  std::thread thread;  // last: it uses the others from its first moment
};

Worker::Worker() : state_(std::make_unique<State>()) {}

Worker::~Worker() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
}

void Worker::wait() {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  s.changed.wait(lock, [&] { return !s.task; });
  if (s.error) std::rethrow_exception(std::exchange(s.error, nullptr));
}

void Worker::start(std::function<void()> task) {
  wait();
  {
    const std::lock_guard lock(state_->mutex);
    state_->task = std::move(task);
  }
  state_->changed.notify_all();
}

void Worker::State::serve() {
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [&] { return stopping || task; });
    if (!task) return;
    std::exception_ptr thrown;
    lock.unlock();
    try {
      task();
    } catch (...) {
      thrown = std::current_exception();
    }
    lock.lock();
    // Destroys the task's captures before wait() can return.
    task = nullptr;
    error = thrown;
    changed.notify_all();
  }
}

}  // namespace halftape::optim
