// Loss scaling for an optimizer that steps on its own thread: when does the verdict of a step move
// the scale? Spelled as RoundPipe's GradScaler (github.com/ITcarrot/RoundPipe).
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "halftape/amp/grad_scaler.h"
#include "halftape/optim/async/async_optimizer.h"

namespace halftape::amp {

/// With s(k) the scale of the synchronous law after k steps, which one multiplies loss k?
enum class ScaleDelivery : uint8_t {
  /// s(k). The worker publishes its verdict before it updates, and the next loss waits for that:
  /// a whole forward pass later. The scales of GradScaler exactly, over weights one step old.
  Prompt,
  /// s(k−1), as in RoundPipe: what step k finds counts from loss k+2. Nothing ever waits for a
  /// check, but the step that follows an overflow overflows, too: two skips, two halvings.
  Late,
};

/// What update() is told.
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
/// The law is GradScaler's (core/formula/scaler.h), and it is run by the caller's thread alone: of
/// the worker's findings only the verdicts are read, and those by value. Each step is divided by
/// the scale that multiplied its loss. Losses that are not finite, marked gradients and skips in a
/// row are GradScaler's matter here, too; what it says in update(), the next call says that waits
/// for a verdict. Calls come from one thread; in a wrong order they throw.
class AsyncGradScaler {
 public:
  explicit AsyncGradScaler(GradScalerOptions options = {},
                           ScaleDelivery delivery = ScaleDelivery::Prompt);

  /// loss · scale. Prompt: waits for the verdicts of the steps before the last update().
  Tensor scale(const Tensor& loss);
  std::vector<Tensor> scale(const std::vector<Tensor>& losses);
  /// Hands over the optimizer's step; `options.scale` is filled in here. Skips, on the worker, when
  /// a gradient is not finite. Throws for float16 gradients unless allow_fp16_grads.
  optim::AsyncStep step(optim::AsyncOptimizer& optimizer, optim::AsyncStepOptions options = {});
  /// Moves the scale by what the steps since the last update() find; once, after all of them.
  void update(const ScaleUpdate& how = {});
  void update(double new_scale) { update(ScaleUpdate{.new_scale = new_scale}); }

  /// The scale in use. With `up_to_date`: the newest one, after waiting for all verdicts; with Late
  /// that is the scale of the pass after the next. 1 when disabled.
  double get_scale(bool up_to_date = false);
  int64_t get_growth_tracker(bool up_to_date = false);
  /// What was set last. A set value counts for the update() calls that follow it, never for those
  /// whose verdicts are still awaited. `up_to_date` waits for these, and changes nothing else.
  double get_growth_factor(bool up_to_date = false);
  void set_growth_factor(double factor);
  double get_backoff_factor(bool up_to_date = false);
  void set_backoff_factor(double factor);
  int64_t get_growth_interval(bool up_to_date = false);
  void set_growth_interval(int64_t interval);
  /// As GradScaler's, of all steps before the last update(): waits for their verdicts.
  ScalerStats stats();
  bool is_enabled() const { return options_.enabled; }
  ScaleDelivery delivery() const { return delivery_; }

  /// GradScaler's entries, and "_scale_in_use". Waits for all verdicts; between update() and the
  /// next step() a resumed run goes on with the same bits. Empty when disabled.
  using StateDict = GradScaler::StateDict;
  StateDict state_dict();
  /// Throws, changing nothing, on a missing or senseless value. Takes a GradScaler's, too.
  void load_state_dict(const StateDict& saved);

 private:
  struct HandedOver {
    optim::AsyncStep step;
    int64_t optimizer;  // its number in met_
  };
  /// An update() whose verdicts were not looked at yet.
  struct Pending {
    std::vector<HandedOver> steps;
    Array bad_loss;
    ScalerLaw law;
    std::optional<double> new_scale;
  };
  void settle();
  void report(bool bad_loss) const;

  GradScalerOptions options_;
  ScaleDelivery delivery_;
  ScalerLaw law_;
  ScalerState newest_;   // after every update() that is settled
  ScalerCounts counts_;  // likewise
  float in_use_;         // what losses are multiplied by
  std::optional<Pending> pending_;
  MetOptimizers met_;

  // Since the last update():
  Ref<GradTag> scaled_;  // marks the gradients of losses scaled since then
  Array bad_loss_;       // one float32: has a loss been infinite or NaN?
  std::vector<HandedOver> steps_;
};

}  // namespace halftape::amp
