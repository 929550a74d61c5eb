// What each loss scale would lose: backward passes of one batch at many scales, beside float32.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "halftape/amp/inspector/ledger.h"
#include "halftape/nn/module.h"

namespace halftape::amp {

/// One training step at many scales, beside the same step in float32. Each scale has a backward
/// pass of its own: exponents of one pass, shifted, tell what another scale loses in the last
/// layer, but say too little where gradients were lost on the way.
struct ScaleTrials {
  /// Gradients that are stored in 16 bits.
  std::vector<LedgerPlace> places;
  std::vector<ExponentCounts> float32;  // of each place: the gradient in float32, not scaled
  /// Of each place: the gradient as it was stored at reference_scale, the largest scale that did
  /// not overflow; if all did, as `float32`, with 1.
  std::vector<ExponentCounts> reference;
  double reference_scale = 1;           // that of `reference`
  std::vector<std::string> parameters;  // their names
  struct Trial {
    double scale = 1;
    std::vector<ClassCounts> seen;  // of each place
    std::vector<double> errors;  // of each parameter: ‖g/scale − shadow‖ / ‖shadow‖; NaN for 0/0
    bool overflows = false;  // GradScaler would skip the step
  };
  std::vector<Trial> trials;  // in the order of their scales

  /// The share of the float32 gradient's non-zero numbers that are 0 at that place in that trial.
  double lost(size_t trial, size_t place) const;
};

/// Computes the loss as `loss` does, and with autocast to float32 in its place; then one backward
/// pass for each scale 2^first … 2^last. Weights, buffers, gradients and random generators stay as
/// they are. Throws unless −126 ≤ first ≤ last ≤ 127, and for a loss that needs no gradient.
ScaleTrials try_scales(const nn::Module& model, const std::function<Tensor()>& loss,
                       int first = -10, int last = 40);

/// The scales that suit a module.
struct UsefulScales {
  std::string module;                       // "fc1"
  std::optional<double> smallest, largest;  // of those tried; none: no scale is good enough
};
/// For each module with parameters: the smallest and the largest scale at which its weight
/// gradients are off by at most `error`, and finite.
std::vector<UsefulScales> useful_scales(const ScaleTrials& trials, double error = 0.01);

}  // namespace halftape::amp
