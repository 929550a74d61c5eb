// Schedules and averages that follow the applied steps of a GradScaler, without waiting for the
// device at every step.
#pragma once
#include <concepts>
#include <utility>

#include "halftape/amp/grad_scaler.h"
#include "halftape/nn/module.h"
#include "halftape/optim/averaging.h"
#include "halftape/optim/schedulers/lr_scheduler.h"

namespace halftape::amp {

/// Moves a schedule with the steps that were applied. The device counts the skipped steps. This
/// class moves the schedule at every step, reads the count once in `look_every` steps, and then
/// holds the schedule for as many steps as were skipped. The schedule never falls behind, and is
/// ahead by at most the skips since the last look, however fast the device is. look_every = 1 is
/// exact, and waits at every step.
///
///     amp::AppliedSteps applied;
///     for (…) {
///       const amp::StepResult result = scaler.step(optimizer);
///       scaler.update();
///       applied.step(result, schedule);
///     }
class AppliedSteps {
 public:
  /// Throws unless look_every > 0.
  explicit AppliedSteps(int64_t look_every = 100);

  /// Calls `move` unless the schedule is held, and returns whether it did. Ignores a step without
  /// gradients.
  template <class Move>
  requires std::invocable<Move>
  bool step(const StepResult& result, Move&& move) {
    if (!count(result)) return false;
    std::forward<Move>(move)();
    return true;
  }
  bool step(const StepResult& result, optim::LRScheduler& schedule) {
    return step(result, [&] { schedule.step(); });
  }

  /// Everything that the next step depends on, as numbers; waits for the device. load_state_dict
  /// throws, changing nothing, for other numbers.
  optim::SchedulerState state_dict() const;
  /// Goes on where state_dict() was called.
  void load_state_dict(const optim::SchedulerState& saved);

 private:
  bool count(const StepResult& result);
  void look();
  void fields(optim::StateFields& fields);
  int64_t look_every_;
  int64_t steps_ = 0;
  int64_t steps_to_hold_ = 0;  // skipped steps at which the schedule moved
  Tensor skips_;               // since the last look; () int64 on the device
  int64_t loaded_skips_ = 0;   // the part of them that load_state_dict() brought
};

/// Averages the model's weights if the step was applied; the device decides.
inline void update_average(const StepResult& result, optim::AveragedModel& averaged,
                           const nn::Module& model) {
  if (result.had_gradients) averaged.update_parameters(model, result.skipped());
}

}  // namespace halftape::amp
