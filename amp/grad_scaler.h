// GradScaler multiplies the loss so that small gradients do not vanish in float16, and skips the
// steps whose gradients overflowed. Spelled as torch.amp.GradScaler. Micikevicius et al. 2017,
// arXiv:1710.03740, section 3.2.
#pragma once
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "halftape/amp/scaler_base.h"
#include "halftape/autograd/tape/grad_tag.h"

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

/// "applied", "skipped: a gradient is not finite", "skipped: the loss is not finite", or "nothing
/// to do: no gradients". Waits for the device.
std::ostream& operator<<(std::ostream& out, const StepResult& result);

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

/// Dynamic loss scaling. One training step:
///
///     optimizer.zero_grad();
///     scaler.scale(loss).backward();    // gradients are scale times too large
///     scaler.unscale_(optimizer);       // optional: before clipping
///     scaler.step(optimizer);           // unscales if need be; skips if a gradient is not finite
///     scaler.update();                  // the next scale; once, after all optimizers' steps
///
/// Only calls that say so wait for the device. Calls in a wrong order throw and name the missing
/// call. Clipping and optimizer.step() throw while gradients are still scaled. Every use of a sum
/// of gradients of different scales throws, and every use of gradients of a loss that was scaled
/// twice; backward() itself may make them, because zero_grad() may drop them unused, as in the
/// discriminator of a GAN. A gradient that the user assigned or changed in place has no mark, and
/// every use of it is allowed.
///
/// The step of a Graph contains all of scale(), step() and update(), or none of them; its replays
/// keep to the law that it was captured with.
class GradScaler : public ScalerBase {
 public:
  explicit GradScaler(GradScalerOptions options = {});
  GradScaler(GradScaler&&) = default;  // a copy would share the state on the device
  GradScaler& operator=(GradScaler&&) = default;

  /// loss · scale. The first scaled loss decides on which device the state lives. After a loss that
  /// is infinite or NaN, all gradients that are checked until update() count as not finite, and the
  /// scale does not back off.
  Tensor scale(const Tensor& loss);
  std::vector<Tensor> scale(const std::vector<Tensor>& losses) { return scale_each(*this, losses); }
  /// Divides the optimizer's gradients by the scale, in place, and looks for inf and NaN. Throws
  /// before the first scale(), after this optimizer's step(), and when it is called twice between
  /// two calls of update(); as step() does, when a gradient comes from a loss that was not scaled
  /// since the last update(), and for float16 gradients unless allow_fp16_grads is set.
  void unscale_(optim::Optimizer& optimizer);
  /// The optimizer's step. If a gradient is not finite, parameters and state stay bit for bit as
  /// they were. Gradients that unscale_() has not divided are divided here, in place. If one of
  /// them is float16, all stay scaled, and the update divides them in float32 as it reads them.
  /// Throws before the first scale(), when it is called twice between two calls of update(), and
  /// for a closure unless the scaler is disabled: the loss of a closure is not scaled. If it fails
  /// halfway (memory runs out, say), its gradients are of no further use: go on with
  /// optimizer.zero_grad() and the next loss, with update() or without.
  StepResult step(optim::Optimizer& optimizer,
                  const optim::Optimizer::LossClosure& closure = nullptr);
  /// Moves the scale by the law (core/formula/scale.h), after what the steps since the last
  /// update() found. Throws after throw_after_skips skips in a row.
  void update();
  /// Sets the scale instead; the growth tracker stays as it is, and the statistics count nothing.
  /// The device clamps a tensor's value to the bounds; a value that is not positive changes
  /// nothing.
  void update(double new_scale);
  void update(const Tensor& new_scale);

  /// The scale, for logging; waits for the device. 1 when disabled.
  double get_scale() const;
  /// The scale on the device, () in float32, for an op such as mlp_loss() that needs it before
  /// scale(). Undefined when disabled, and before the first scale(). update() changes it in place.
  /// scale() then multiplies by this tensor instead of a copy, until update(): call backward()
  /// before update().
  Tensor factor();
  double get_growth_factor() const { return law_.growth_factor; }
  double get_backoff_factor() const { return law_.backoff_factor; }
  int64_t get_growth_interval() const { return law_.growth_interval; }
  /// Good steps since the scale last changed; waits for the device.
  int64_t get_growth_tracker() const;
  /// Waits for the device.
  ScalerStats stats() const;

  /// The statistics and everything that the next step depends on, as numbers; torch's five under
  /// torch's names. Empty when disabled. Waits for the device. Save it after update(): what a
  /// step() has found since then is not part of it.
  using StateDict = std::map<std::string, double>;
  /// The numbers.
  StateDict state_dict() const;
  /// Also loads a dictionary with torch's five numbers alone: other options then stay as they are,
  /// and the statistics start at zero. Throws, changing nothing, on a missing or senseless value.
  /// Begins anew as update() does: gradients that were scaled before, and what a step() has found
  /// in them, no longer count, and an update() with no step() in between throws.
  void load_state_dict(const StateDict& saved);

 private:
  friend class Inspector;       // reads the scale's array
  friend class AlarmWatch;      // and the number of loaded states
  friend class HeadroomGrowth;  // and the counts' array
  enum class Stage : uint8_t { Ready, Unscaled, Stepped, Failed };
  /// What was found in the gradients of one optimizer, and whether they are divided.
  struct CheckedGradients {
    CheckResult finding = {};  // arrays undefined: no gradients
    Array bad_loss = {};       // as it was known then
    Array inv_scale = {};      // 1 / scale, for the update to multiply by; undefined: divided
  };
  struct PerOptimizer {
    uint64_t id;
    CheckedGradients checked = {};
    Stage stage = Stage::Ready;
  };
  enum class Divide : uint8_t { InPlace, InUpdateIfFloat16 };
  bool initialised() const { return scale_.defined(); }
  void require_scale(const char* call) const;
  void create_state(Device device);
  void fill_scale();
  void fill_counts(const ScaleState& state, const ScaleCounts& counts);
  PerOptimizer& entry(const optim::Optimizer& optimizer);
  CheckedGradients check_or_unscale(const optim::Optimizer& optimizer, Divide where);
  void agree(const std::vector<Tensor>& parameters, CheckedGradients& checked);
  template <class F>
  void attempt(const optim::Optimizer& optimizer, const F& f);
  void check_unscaled(const optim::Optimizer& optimizer, const CheckedGradients& checked) const;
  void begin_epoch();
  void end_epoch();
  void watch_skips(const Array& bad_loss);
  ScaleState state() const;
  ScaleCounts counts() const;

  ScaleState initial_;              // the state until the first scaled loss decides on the device
  ScaleCounts initial_counts_;      // likewise
  Array scale_;                     // () float32 on the device
  Array trackers_, counts_;         // (2) int32 and (8) int64, as in Transition
  int64_t updates_until_read_ = 0;  // updates before which throw_after_skips cannot be reached
  int64_t state_number_ = 0;        // no other scaler's; another one after a load

  // Since the last update():
  Array bad_loss_;                // () float32: non-zero after a loss that is infinite or NaN
  Array inverse_;                 // () float32: 1 / scale
  CheckResult next_;              // zeroed by scale() for the next check of gradients
  bool factor_is_known_ = false;  // to an op that multiplies by it beforehand
  Ref<GradTag> scaled_;           // marks gradients of losses scaled since then
  Ref<GradTag> failed_;           // marks those of a step that threw
  std::vector<PerOptimizer> optimizers_;
};

}  // namespace halftape::amp
