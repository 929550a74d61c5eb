// GradScaler: keeps small gradients above half's smallest number by scaling the loss, and skips the
// steps whose gradients overflowed. Spelled as torch.amp.GradScaler. Micikevicius et al. 2017,
// arXiv:1710.03740, section 3.2.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "halftape/amp/scaler_stats.h"
#include "halftape/amp/step_result.h"
#include "halftape/autograd/tape/grad_tag.h"
#include "halftape/core/formula/scaler.h"
#include "halftape/optim/optimizer.h"

namespace halftape::amp {

/// torch's defaults, named as torch's keywords: `GradScaler scaler({.init_scale = 1024})`. What
/// torch lacks changes nothing unless it is set.
struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;        // > 1, or 1 together with backoff_factor 1: a static scale
  double backoff_factor = 0.5;     // in (0, 1)
  int64_t growth_interval = 2000;  // good steps in a row before the scale grows
  bool enabled = true;             // false: every call passes through
  std::optional<double> min_scale = {}, max_scale = {};
  int64_t hysteresis = 1;  // which overflow makes the scale fall: 1 the first, 2 the second …
  Hysteresis refill = Hysteresis::RefilledByCleanStep;
  bool allow_fp16_grads = false;
  int64_t warn_after_skips = 10;  // in a row; 0: never. The device says so: nobody waits
  int64_t throw_after_skips = 0;  // in a row; 0: never. update() waits once in so many steps

  /// A scale that never changes; steps with non-finite gradients are still skipped.
  static GradScalerOptions fixed(double scale) {
    GradScalerOptions o;
    o.init_scale = scale;
    o.growth_factor = o.backoff_factor = 1;
    return o;
  }
};

/// Dynamic loss scaling. One training step:
///
///     optimizer.zero_grad();
///     scaler.scale(loss).backward();    // gradients are scale times too large
///     scaler.unscale_(optimizer);       // optional: before clipping
///     scaler.step(optimizer);           // unscales if need be; skips if a gradient is not finite
///     scaler.update();                  // the next scale; once, after all optimizers' steps
///
/// Nothing here waits for the device except where said. Calls in a wrong order throw and name the
/// missing call; so do clipping and optimizer.step() while gradients are still scaled, and every
/// use of a sum of gradients of different scales. backward() may make such sums: what is forgotten
/// before it is used, as a GAN's discriminator forgets what its generator's loss left, harms
/// nobody. A gradient that the user assigned or changed in place is the user's: nothing is known of
/// it, and all is allowed.
class GradScaler {
 public:
  explicit GradScaler(GradScalerOptions options = {});
  GradScaler(GradScaler&&) = default;  // a copy would share the state on the device
  GradScaler& operator=(GradScaler&&) = default;

  /// loss · scale. The first scaled tensor decides on which device the state lives. A loss that is
  /// infinite or NaN is noticed: gradients that are checked from here to update() count as not
  /// finite, and the scale does not back off.
  Tensor scale(const Tensor& loss);
  std::vector<Tensor> scale(const std::vector<Tensor>& losses);
  /// Divides the optimizer's gradients by the scale, in place, and looks for inf and NaN. Once per
  /// update(). Throws when a gradient comes from a loss that was not scaled since the last
  /// update().
  void unscale_(optim::Optimizer& optimizer);
  /// The optimizer's step, unless a gradient is not finite: then parameters and state stay bit for
  /// bit as they were. Gradients that unscale_() has not divided are divided here, in place; where
  /// one of them is float16 they stay scaled, and are divided in float32 as the update reads them.
  /// Closures cannot be scaled: pass one only when disabled.
  StepResult step(optim::Optimizer& optimizer,
                  const optim::Optimizer::LossClosure& closure = nullptr);
  /// Moves the scale by the law (core/formula/scaler.h) on what the steps since the last update()
  /// found. Throws after throw_after_skips skips in a row.
  void update();
  /// Sets the scale instead; the growth tracker stays as it is, and nothing is counted. A tensor's
  /// value is moved into the bounds on the device, and left alone where it is not positive.
  void update(double new_scale);
  void update(const Tensor& new_scale);

  /// The scale, for logging; waits for the device. 1 when disabled.
  double get_scale() const;
  /// The scale as it is on the device, () in float32, for ops that want to know before scale() what
  /// they will be multiplied by (mlp_loss()); undefined when disabled, and before the first
  /// scale(). It changes with update(). Losses that are scaled between this call and update() are
  /// multiplied by these bytes themselves instead of by a copy: their backward() comes before
  /// update().
  Tensor factor();
  double get_growth_factor() const { return law_.growth_factor; }
  void set_growth_factor(double factor);
  double get_backoff_factor() const { return law_.backoff_factor; }
  void set_backoff_factor(double factor);
  int64_t get_growth_interval() const { return law_.growth_interval; }
  void set_growth_interval(int64_t interval);
  int64_t get_growth_tracker() const;
  bool is_enabled() const { return options_.enabled; }
  /// Kept on the device; waits for it.
  ScalerStats stats() const;

  /// Everything the next step depends on and the counts, as numbers; empty when disabled. The first
  /// five under torch's names. Waits for the device.
  using StateDict = std::map<std::string, double>;
  StateDict state_dict() const;
  /// Of a dictionary of torch's five numbers the rest stays as constructed, and the counts begin
  /// anew. Throws, changing nothing, on a missing or senseless value.
  void load_state_dict(const StateDict& saved);

 private:
  enum class Stage : uint8_t { Ready, Unscaled, Stepped };
  struct PerOptimizer {
    uint64_t who;                // Optimizer::id()
    ScalerFinding finding = {};  // without arrays: no gradients were seen
    Array bad_loss = {};         // as it was known then
    Stage stage = Stage::Ready;
  };
  enum class InPlace : bool { No, Yes };
  bool initialised() const { return scale_.defined(); }
  void require_scale(const char* call) const;
  void create_state(Device device);
  void fill_state(const ScalerState& state, const ScalerCounts& counts);
  PerOptimizer& per(const optim::Optimizer& optimizer);
  Array judge(const optim::Optimizer& optimizer, const char* call, InPlace divide);
  static bool divides_as_it_reads(const optim::Optimizer& optimizer);
  void begin_epoch();
  void end_epoch();
  void watch_skips(const Array& bad_loss);
  ScalerState state() const;
  ScalerCounts counts() const;

  GradScalerOptions options_;
  ScalerLaw law_;
  ScalerState initial_;          // until the first scaled tensor shows the device
  ScalerCounts initial_counts_;  // likewise
  Array scale_;                  // float32, one element on the device
  Array trackers_, counts_;      // int32 (2) and int64 (8), as ScalerUpdate has them
  int64_t until_look_ = 0;       // updates before throw_after_skips could have come about

  // Since the last update():
  Array bad_loss_;                // one float32: has a loss been infinite or NaN?
  Array inverse_;                 // one float32: 1 / scale
  ScalerFinding next_;            // of the optimizer whose gradients are judged next
  bool factor_is_known_ = false;  // to an op that multiplies by it beforehand
  Ref<GradTag> scaled_;           // marks the gradients of losses scaled since then
  Ref<GradTag> unscaled_;         // and those that were divided again
  std::vector<PerOptimizer> optimizers_;
  MetOptimizers met_;  // not only since the last update()
};

}  // namespace halftape::amp
