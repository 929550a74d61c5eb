// GradScaler: keeps small gradients above half's smallest number by scaling the loss, and skips the
// steps whose gradients overflowed. Spelled as torch.amp.GradScaler. Micikevicius et al. 2017,
// arXiv:1710.03740, section 3.2.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "halftape/core/formula/scaler.h"
#include "halftape/optim/optimizer.h"

namespace halftape::amp {

/// torch's defaults. The bounds do nothing unless set.
struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;        // > 1, or 1 together with backoff_factor 1: a static scale
  double backoff_factor = 0.5;     // in (0, 1)
  int64_t growth_interval = 2000;  // good steps in a row before the scale grows
  bool enabled = true;             // false: every call passes through
  std::optional<double> min_scale = {}, max_scale = {};
  bool allow_fp16_grads = false;

  /// A scale that never changes; steps with non-finite gradients are still skipped.
  static GradScalerOptions fixed(double scale) {
    GradScalerOptions o;
    o.init_scale = scale;
    o.growth_factor = o.backoff_factor = 1;
    return o;
  }
};

/// What became of one step. Asking applied() or found_inf() waits for the device; not asking costs
/// nothing.
class StepResult {
 public:
  Tensor loss;  // the closure's value, where there was one
  /// Were the parameters updated?
  bool applied() const { return had_gradients && !found_inf(); }
  /// Was any gradient infinite or NaN?
  bool found_inf() const { return found_inf_.defined() && read_double(found_inf_) != 0; }
  /// False when no parameter had a gradient: nothing was checked and nothing done.
  bool had_gradients = true;

 private:
  friend class GradScaler;
  Array found_inf_;  // one float32 on the device
};

/// Dynamic loss scaling. One training step:
///
///     optimizer.zero_grad();
///     scaler.scale(loss).backward();    // gradients are scale times too large
///     scaler.unscale_(optimizer);       // optional: before clipping
///     scaler.step(optimizer);           // unscales if that was not done; skips if a gradient is
///     not finite scaler.update();                  // the next scale; once, after all optimizers'
///     steps
///
/// Nothing here waits for the device except where said. Calls in a wrong order throw and name the
/// missing call.
class GradScaler {
 public:
  explicit GradScaler(GradScalerOptions options = {});

  /// loss · scale. The first scaled tensor decides on which device the state lives.
  Tensor scale(const Tensor& loss);
  std::vector<Tensor> scale(const std::vector<Tensor>& losses);
  /// Divides the optimizer's gradients by the scale, in place, and looks for inf and NaN. Once per
  /// update().
  void unscale_(optim::Optimizer& optimizer);
  /// The optimizer's step, unless a gradient is not finite: then parameters and state stay bit for
  /// bit as they were. Closures cannot be scaled: pass one only when disabled.
  StepResult step(optim::Optimizer& optimizer,
                  const optim::Optimizer::LossClosure& closure = nullptr);
  /// Moves the scale by the law (core/formula/scaler.h) on what the steps since the last update()
  /// found.
  void update();
  /// Sets the scale instead. The growth tracker stays as it is.
  void update(double new_scale);
  void update(const Tensor& new_scale);

  /// The scale, for logging; waits for the device. 1 when disabled.
  double get_scale() const;
  double get_growth_factor() const { return law_.growth_factor; }
  void set_growth_factor(double factor);
  double get_backoff_factor() const { return law_.backoff_factor; }
  void set_backoff_factor(double factor);
  int64_t get_growth_interval() const { return law_.growth_interval; }
  void set_growth_interval(int64_t interval);
  int64_t get_growth_tracker() const;
  bool is_enabled() const { return options_.enabled; }

  /// Everything the next step depends on, as numbers under torch's names; empty when disabled.
  /// Waits for the device.
  using StateDict = std::map<std::string, double>;
  StateDict state_dict() const;
  /// Throws, changing nothing, on a missing or senseless value.
  void load_state_dict(const StateDict& saved);

 private:
  enum class Stage : uint8_t { Ready, Unscaled, Stepped };
  struct PerOptimizer {
    Stage stage = Stage::Ready;
    Array found_inf;  // undefined: no gradients were seen
  };
  bool initialised() const { return scale_.defined(); }
  void require_scale(const char* call) const;

  GradScalerOptions options_;
  ScalerLaw law_;
  ScalerState initial_;  // until the first scaled tensor shows the device
  Tensor scale_;         // float32, one element on the device
  Array trackers_;       // int32 (2), on the device
  std::map<const optim::Optimizer*, PerOptimizer> optimizers_;  // since the last update()
};

}  // namespace halftape::amp
