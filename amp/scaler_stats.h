// What a scaler can tell of its past: counts, and which gradient was the first that was not finite.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "halftape/core/formula/scaler.h"
#include "halftape/optim/optimizer.h"

namespace halftape::amp {

/// What happened so far, counted in updates: calls of update() that judged a step.
struct ScalerStats {
  int64_t steps = 0;         // updates
  int64_t skips = 0;         // of them, those that found something infinite or NaN
  int64_t skips_in_row = 0;  // up to the last one
  int64_t bad_losses = 0;    // of the skips, those for the loss itself
  int64_t growths = 0, backoffs = 0;
  /// A gradient, in Optimizer::parameters() and in its group.
  struct Parameter {
    size_t optimizer;  // counted in the order in which the scaler met them
    size_t index, group;
    Shape shape;
  };
  std::optional<Parameter> nonfinite;  // the first one of the last skip
};

/// The optimizers that a scaler has met, in that order, and where their parameters stand.
class MetOptimizers {
 public:
  /// The number of the optimizer with that id(); remembers its parameters as they are now.
  int64_t meet(uint64_t id, const std::vector<optim::OptimizerParamGroup>& groups);
  ScalerStats stats(const ScalerCounts& counts) const;

 private:
  struct Place {
    size_t group;
    Shape shape;
  };
  struct Met {
    uint64_t who;
    std::vector<Place> parameters;
  };
  std::vector<Met> met_;
};

}  // namespace halftape::amp
