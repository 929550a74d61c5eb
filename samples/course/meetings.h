// The points of one step where its two threads meet: the caller's, and the optimizer's own.
#pragma once
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "course.h"

namespace course {

using namespace halftape;

/// Names with a space before each, in the order of either thread.
struct Meetings {
  std::string of_caller, of_worker;
};

inline Meetings meetings_of_a_step() {
  static Meetings meetings;  // static: a hook is a function without a state of its own
  static const std::thread::id caller = std::this_thread::get_id();
  const auto note = [](optim::Meeting m) {
    constexpr const char* names[] = {" wait-for-step",   " copy-weights",    " hand-over",
                                     " check",           " publish-verdict", " update",
                                     " wait-for-verdict"};
    const bool called = std::this_thread::get_id() == caller;
    (called ? meetings.of_caller : meetings.of_worker) += names[static_cast<int>(m)];
  };
  const Tensor w = ones({3}, requires_grad());
  optim::AsyncOptimizer optimizer(
      std::make_unique<optim::SGD>(std::vector{w}, optim::SGDOptions(0.1)));
  amp::AsyncGradScaler scaler;
  for (const bool noted : {false, true}) {
    optimizer.drain();
    if (noted) optim::set_meeting_hook(note);
    scaler.scale((w * w).sum()).backward();
    scaler.step(optimizer);
    scaler.update();
  }
  const std::string of_caller = meetings.of_caller;  // without what drain() waits for
  optimizer.drain();
  optim::set_meeting_hook(nullptr);
  return {of_caller, meetings.of_worker};
}

}  // namespace course
