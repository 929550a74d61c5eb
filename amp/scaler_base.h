// What GradScaler and AsyncGradScaler share: options, the law's constants, statistics, saved state.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "halftape/core/formula/scale.h"
#include "halftape/optim/optimizer.h"

namespace halftape::amp {

/// torch's defaults under torch's names: `GradScaler scaler({.init_scale = 1024})`. The options
/// that torch lacks have no effect until they are set.
struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;        // > 1, or 1 together with backoff_factor 1: a static scale
  double backoff_factor = 0.5;     // in (0, 1)
  int64_t growth_interval = 2000;  // good steps in a row before the scale grows
  bool enabled = true;             // false: every call passes through
  /// Bounds of the scale; without them 2^-126 and the largest float.
  std::optional<double> min_scale = {}, max_scale = {};
  int64_t hysteresis = 1;  // the scale backs off on the n-th overflow
  /// What starts the count of overflows anew: a clean step (Apex), or growth alone (Megatron).
  Hysteresis refill = Hysteresis::RefilledByCleanStep;
  /// Takes float16 gradients, for which step() and unscale_() throw otherwise.
  bool allow_fp16_grads = false;
  int64_t warn_after_skips = 10;  // in a row; 0: never. The device warns, and nothing waits for it
  int64_t throw_after_skips = 0;  // in a row; 0: never. update() waits once in this many steps

  /// A scale that never changes; steps with non-finite gradients are still skipped.
  static GradScalerOptions fixed(double scale) {
    GradScalerOptions o;
    o.init_scale = scale;
    o.growth_factor = o.backoff_factor = 1;
    return o;
  }
};

/// What happened so far. A step here is an update() that had gradients to check.
struct ScalerStats {
  int64_t steps = 0;                  // taken or skipped
  int64_t skips = 0;                  // steps that found something infinite or NaN
  int64_t skips_in_row = 0;           // up to the last step
  int64_t bad_losses = 0;             // skips because of the loss itself
  int64_t growths = 0, backoffs = 0;  // changes of the scale, up and down
  /// A gradient, by its place in Optimizer::parameters() and its group.
  struct Parameter {
    size_t optimizer;     // numbered in the order in which the scaler first saw them
    size_t index, group;  // in Optimizer::parameters(), and its group
    Shape shape;          // of the gradient
  };
  std::optional<Parameter> nonfinite;  // the first one of the last skip
};
/// One line: "1200 steps, 3 skipped (0 in a row, 0 by the loss); scale grew 2x, backed off 3x; …",
/// and at its end the gradient `nonfinite`.
std::ostream& operator<<(std::ostream& out, const ScalerStats& stats);

/// The optimizers that a scaler has seen, in that order, and the places of their parameters.
class OptimizerRegistry {
 public:
  /// The number of the optimizer with that id(); remembers its parameters as they are now.
  int64_t number_of(uint64_t id, const std::vector<optim::OptimizerParamGroup>& groups);
  /// Whether that number is the one of the optimizer with that id().
  bool is(size_t number, uint64_t id) const {
    return number < entries_.size() && entries_[number].id == id;
  }
  /// The counts, with the place that they name looked up.
  ScalerStats stats(const ScaleCounts& counts) const;

 private:
  struct Entry {
    uint64_t id;
    std::vector<std::pair<size_t, Shape>> parameters;  // group and shape
  };
  std::vector<Entry> entries_;
};

/// The base of both scalers.
class ScalerBase {
 public:
  bool is_enabled() const { return options_.enabled; }
  /// Each throws for a senseless value, and then changes nothing.
  void set_growth_factor(double factor);
  /// Throws for a senseless value, and then changes nothing.
  void set_backoff_factor(double factor);
  /// Throws for a senseless value, and then changes nothing.
  void set_growth_interval(int64_t interval);

 protected:
  /// Throws for options that make no sense, unless they disable the scaler.
  explicit ScalerBase(const GradScalerOptions& options);
  /// scaler.scale() of each loss.
  template <class Scaler>
  static std::vector<Tensor> scale_each(Scaler& scaler, const std::vector<Tensor>& losses) {
    std::vector<Tensor> scaled;
    scaled.reserve(losses.size());
    for (const Tensor& loss : losses) scaled.push_back(scaler.scale(loss));
    return scaled;
  }

  /// For a disabled scaler; once.
  void tell_disabled(std::span<const Tensor> parameters, int64_t flags);

  GradScalerOptions options_;
  ScaleLaw law_;
  OptimizerRegistry registry_;

 private:
  bool told_disabled_ = false;
};

/// A scaler's state, which is saved as numbers by name.
struct SavedScaler {
  ScaleLaw law;  // its constants
  ScaleState state;
  ScaleCounts counts;  // without `list` and `position`, which name an optimizer of this run
};
/// Torch's five numbers under torch's names, and ours.
std::map<std::string, double> to_dict(SavedScaler scaler);
/// If only torch's five numbers are there, the other constants are those of `current`, and the
/// counts start at zero. Throws for a senseless value, and for one that is missing.
SavedScaler from_dict(const std::map<std::string, double>& saved, const ScaleLaw& current);

/// The warning about steps skipped in a row, with the place to look at:
/// "GradScaler: 10 steps in a row were skipped, the scale is 64; …".
std::string skip_warning(const char* scaler, int64_t in_row, float scale, bool bad_loss);

/// Throws for constants that make no sense.
void check_law(const ScaleLaw& law);
/// Throws unless the scale is positive, finite in float32, and within the law's bounds.
void check_scale(double scale, const ScaleLaw& law);

}  // namespace halftape::amp
