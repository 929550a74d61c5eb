// What became of a step of a GradScaler, and what may depend on it.
#pragma once
#include <utility>

#include "halftape/autograd/tensor.h"

namespace halftape::amp {

/// What became of one step. Asking waits for the device; not asking costs nothing.
class StepResult {
 public:
  Tensor loss;  // the closure's value, where there was one
  /// Were the parameters updated?
  bool applied() const { return had_gradients && !found_inf(); }
  /// Was something infinite or NaN, a gradient or a loss given to scale()? Then the step was
  /// skipped.
  bool found_inf() const { return says(found_inf_); }
  /// The same on the device, without waiting: one number, not 0 for a skipped step. Undefined when
  /// nothing was checked, as with a scaler that is disabled.
  Tensor skipped() const { return found_inf_.defined() ? Tensor(found_inf_) : Tensor(); }
  /// Was it a loss? Then no smaller scale would have helped, and the scale did not back off.
  bool bad_loss() const { return says(bad_loss_); }
  /// False when no parameter had a gradient: nothing was checked and nothing done.
  bool had_gradients = true;

 private:
  friend class GradScaler;
  static bool says(const Array& verdict) { return verdict.defined() && read_double(verdict) != 0; }
  Array found_inf_, bad_loss_;  // one float32 each on the device, of this step alone
};

/// Calls `move` only if the step was applied: a learning-rate schedule must not run ahead of the
/// parameters. Waits for the device; where that hurts, give it the result of the step before, which
/// the device has left behind, and the schedule is late by one step. Gives whether it was called.
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
