// A thread that takes one task at a time, and the fence by which one thread waits for another.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

namespace halftape::optim {

/// Raised once, waited for by any number of threads. Copies are the same fence.
class Fence {
 public:
  Fence();
  void raise() const;
  void wait() const;
  bool raised() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Runs one task while its owner goes on.
class Worker {
 public:
  Worker();
  /// Waits for the task in hand. Its owner asks before, with wait(), what it threw.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Waits until no task is in hand; throws what the last one threw, once.
  void wait();
  /// wait(), then hands over `task`. Not taken when wait() throws.
  void start(std::function<void()> task);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Where the two threads of an asynchronous step wait for each other or pass something on.
enum class Meeting : uint8_t {
  Wait,      // the caller: for the step before this one
  Publish,   // the caller: its result becomes the model's weights
  HandOver,  // the caller: the ticket
  Check,     // the worker: unscales and checks
  Verdict,   // the worker: what was found
  Update,    // the worker: clips and updates
  Await,     // the caller: for the verdict
};
/// Called by either thread before each meeting, for tests that try out schedules; null calls
/// nothing. Gives the former one.
using MeetingHook = void (*)(Meeting);
MeetingHook set_meeting_hook(MeetingHook hook);

namespace detail {
void meet(Meeting point);
}

}  // namespace halftape::optim
