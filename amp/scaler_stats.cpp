#include "halftape/amp/scaler_stats.h"

namespace halftape::amp {

int64_t MetOptimizers::meet(uint64_t id, const std::vector<optim::OptimizerParamGroup>& groups) {
  std::vector<Place> now;
  for (size_t g = 0; g < groups.size(); ++g)
    for (const Tensor& p : groups[g].params()) now.push_back({g, p.sizes()});
  for (size_t i = 0; i < met_.size(); ++i) {
    if (met_[i].who != id) continue;
    met_[i].parameters = std::move(now);
    return static_cast<int64_t>(i);
  }
  met_.push_back({id, std::move(now)});
  return static_cast<int64_t>(met_.size()) - 1;
}

ScalerStats MetOptimizers::stats(const ScalerCounts& c) const {
  ScalerStats s{c.steps, c.skips, c.skips_in_row, c.bad_losses, c.growths, c.backoffs, {}};
  if (c.parameter < 0) return s;
  const auto optimizer = static_cast<size_t>(c.optimizer), index = static_cast<size_t>(c.parameter);
  if (index >= met_[optimizer].parameters.size()) return s;  // its groups were changed by hand
  const Place& place = met_[optimizer].parameters[index];
  s.nonfinite = {optimizer, index, place.group, place.shape};
  return s;
}

}  // namespace halftape::amp
