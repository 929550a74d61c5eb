// Loss scaling for an optimizer that steps on its own thread. Spelled as RoundPipe's GradScaler
// (github.com/ITcarrot/RoundPipe).
#pragma once
#include <optional>
#include <vector>

#include "halftape/amp/grad_scaler.h"
#include "halftape/optim/async/async_optimizer.h"

namespace halftape::amp {

/// Which scale multiplies loss k. s(k) is the scale of GradScaler after k steps.
enum class ScaleDelivery : uint8_t {
  /// s(k), on weights that are one step old. The worker publishes its verdict before it updates;
  /// scale() waits for that verdict, one forward pass later.
  Prompt,
  /// s(k−1), as in RoundPipe: the verdict on step k counts from loss k+2. No loss waits for a
  /// check, but the step after an overflow overflows, too: two skips, two halvings.
  Late,
};

/// What AsyncGradScaler::update() may be told.
struct ScaleUpdate {
  std::optional<double> new_scale = {};  // instead of the law's; the growth tracker stays
  bool is_async = true;  // false: waits for the verdict, the next loss has the new scale
};

/// Dynamic loss scaling with a step in flight:
///
///     scaler.scale(loss).backward();
///     scaler.step(optimizer, {.max_norm = 1});   // unscales, checks, clips, updates: elsewhere
///     scaler.update();
///
/// The law is GradScaler's (core/formula/scale.h). It runs on the caller's thread, which reads
/// nothing but verdicts from the worker, by value. Each step is divided by the scale that
/// multiplied its loss. Losses that are not finite, marked gradients and skips in a row are treated
/// as in GradScaler, but the error for too many skips comes from the next call that waits for a
/// verdict. Calls must come from one thread, and throw in a wrong order. The set_ functions count
/// for later update() calls, and not for those whose verdicts are still awaited.
class AsyncGradScaler : public ScalerBase {
 public:
  explicit AsyncGradScaler(GradScalerOptions options = {},
                           ScaleDelivery delivery = ScaleDelivery::Prompt);
  AsyncGradScaler(AsyncGradScaler&&) = default;  // two of them would share what a loss has shown
  AsyncGradScaler& operator=(AsyncGradScaler&&) = default;

  /// loss · scale. Prompt: waits for the verdicts of the steps before the last update().
  Tensor scale(const Tensor& loss);
  std::vector<Tensor> scale(const std::vector<Tensor>& losses) { return scale_each(*this, losses); }
  /// Starts the optimizer's step with `options.scale` filled in. The worker skips it when a
  /// gradient is not finite. Throws for float16 gradients unless allow_fp16_grads.
  optim::AsyncStep step(optim::AsyncOptimizer& optimizer, optim::AsyncStepOptions options = {});
  /// Moves the scale after what the steps since the last update() find. Call it once, after all of
  /// them.
  void update(const ScaleUpdate& how = {});
  void update(double new_scale) { update(ScaleUpdate{.new_scale = new_scale}); }

  /// The scale in use; 1 when disabled. With `newest`: the one after all verdicts, for which it
  /// waits; with Late that is the scale of the pass after the next.
  double get_scale(bool newest = false);
  int64_t get_growth_tracker(bool newest = false) {
    return settled(newest).newest_state_.growth_tracker;
  }
  /// The value that was set last. `newest` waits for all verdicts, and changes nothing else.
  double get_growth_factor(bool newest = false) { return settled(newest).law_.growth_factor; }
  double get_backoff_factor(bool newest = false) { return settled(newest).law_.backoff_factor; }
  int64_t get_growth_interval(bool newest = false) { return settled(newest).law_.growth_interval; }
  /// Of all steps before the last update(). Waits for their verdicts.
  ScalerStats stats();
  ScaleDelivery delivery() const { return delivery_; }

  /// GradScaler's entries and "_scale_in_use"; empty when disabled. Waits for all verdicts. A run
  /// that was saved between update() and the next step() resumes with the same bits.
  using StateDict = GradScaler::StateDict;
  /// GradScaler's entries and the scale in use; waits for all verdicts.
  StateDict state_dict();
  /// Also loads what a GradScaler saved. Throws, changing nothing, on a missing or senseless value.
  void load_state_dict(const StateDict& saved);

 private:
  struct StartedStep {
    optim::AsyncStep step;
    int64_t optimizer;  // its number in registry_
  };
  /// An update() whose verdicts have not been read yet.
  struct PendingUpdate {
    std::vector<StartedStep> steps;
    Array bad_loss;
    ScaleLaw law;
    std::optional<double> new_scale;
  };
  void settle();
  const AsyncGradScaler& settled(bool wanted) { return wanted ? (settle(), *this) : *this; }
  void report(bool bad_loss) const;

  ScaleDelivery delivery_;
  ScaleState newest_state_;  // after all updates but the pending one
  ScaleCounts counts_;       // likewise
  float scale_in_use_;       // what losses are multiplied by
  std::optional<PendingUpdate> pending_;
  int64_t state_number_ = 0;  // no other scaler's; another one after a load

  // Since the last update():
  Ref<GradTag> scaled_;  // marks gradients of losses scaled since then
  Array bad_loss_;       // () float32: non-zero after a loss that is infinite or NaN
  std::vector<StartedStep> steps_;
};

}  // namespace halftape::amp
