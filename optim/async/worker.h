// A thread that takes one task at a time.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

namespace halftape::optim {

/// Runs one task beside its owner's thread.
class Worker {
 public:
  Worker();
  /// Waits for the running task; an exception that wait() did not fetch is lost.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Waits for the running task, if there is one; throws what the last task threw, once.
  void wait();
  /// wait(), then starts `task`; does not start it when wait() throws.
  void start(std::function<void()> task);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The points where the two threads of an asynchronous step wait for each other or pass something.
enum class Meeting : uint8_t {
  Wait,      // the caller waits for the step before this one
  Publish,   // the caller copies that step's result into the model
  HandOver,  // the caller starts the task on the worker
  Check,     // the worker unscales and checks
  Verdict,   // the worker publishes what it found
  Update,    // the worker clips and updates
  Await,     // the caller waits for the verdict
};
/// Sets a function that either thread calls before each meeting, for tests that try out schedules;
/// null for none. Returns the former one.
using MeetingHook = void (*)(Meeting);
MeetingHook set_meeting_hook(MeetingHook hook);

namespace detail {
void meet(Meeting point);
}

}  // namespace halftape::optim
