#include "halftape/io/data/queue.h"

#include <algorithm>
#include <condition_variable>
#include <string>
#include <thread>

#include "halftape/core/start_thread.h"

namespace halftape::data::detail {

struct Gate::State {
  std::mutex mutex;
  std::condition_variable changed;
};

Gate::Gate() : state_(std::make_unique<State>()) {}
Gate::~Gate() = default;
void Gate::lock() { state_->mutex.lock(); }
void Gate::unlock() { state_->mutex.unlock(); }
void Gate::notify_one() { state_->changed.notify_one(); }
void Gate::notify_all() { state_->changed.notify_all(); }
bool Gate::wait(const std::function<bool()>& ready,
                std::optional<std::chrono::milliseconds> timeout) {
  std::unique_lock lock(state_->mutex, std::adopt_lock);
  bool in_time = true;
  if (timeout)  // the time when it is over must be a number
    in_time = state_->changed.wait_for(
        lock, std::min<std::chrono::milliseconds>(*timeout, std::chrono::hours(1 << 20)), ready);
  else
    state_->changed.wait(lock, ready);
  lock.release();  // stays locked: it is the caller's
  return in_time;
}

struct Threads::State {
  std::vector<std::thread> threads;
};

Threads::Threads() : state_(std::make_unique<State>()) {}
Threads::~Threads() = default;
void Threads::start(std::function<void()> work) {
  // The vector starts the thread: where there is no memory for it, none runs that nobody joins.
  halftape::detail::starting_thread(
      "DataLoader: thread " + std::to_string(size() + 1),
      [&] { state_->threads.emplace_back(std::move(work)); },
      "ask for fewer workers, or raise the limit on threads");
}
void Threads::join() {
  for (std::thread& thread : state_->threads) thread.join();
}
size_t Threads::size() const { return state_->threads.size(); }

}  // namespace halftape::data::detail
