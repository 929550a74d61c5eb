// The outcome of a GradScaler's step.
#pragma once
#include <utility>

#include "halftape/autograd/tensor.h"

namespace halftape::amp {

/// The outcome of one step. Functions that give a bool wait for the device.
class StepResult {
 public:
  Tensor loss;  // the closure's value, if there was one
  /// True if the parameters were updated.
  bool applied() const { return had_gradients && !found_inf(); }
  /// True if a gradient, or a loss given to scale(), was infinite or NaN: the step was skipped.
  bool found_inf() const { return says(found_inf_); }
  /// The same on the device, without waiting: () float32, non-zero for a skipped step. Undefined
  /// when nothing was checked, as with a disabled scaler.
  Tensor skipped() const { return found_inf_.defined() ? Tensor(found_inf_) : Tensor(); }
  /// True if it was a loss: a smaller scale would not have helped, and the scale did not back off.
  bool bad_loss() const { return says(bad_loss_); }
  /// False when no parameter had a gradient: nothing was checked and nothing done.
  bool had_gradients = true;

 private:
  friend class GradScaler;
  static bool says(const Array& verdict) { return verdict.defined() && read_double(verdict) != 0; }
  Array found_inf_, bad_loss_;  // () float32 on the device, of this step alone
};

/// Calls `move` only if the step was applied, and returns whether it did: a learning-rate schedule
/// must not run ahead of the parameters. Waits for the device. To avoid the wait, pass the result
/// of the step before: the schedule is then one step late.
///
///     const amp::StepResult result = scaler.step(optimizer);
///     scaler.update();
///     amp::step_if_applied(result, [&] { set_lr(optimizer, schedule(++t)); });
template <class Move>
bool step_if_applied(const StepResult& result, Move&& move) {
  if (!result.applied()) return false;
  std::forward<Move>(move)();
  return true;
}

}  // namespace halftape::amp
