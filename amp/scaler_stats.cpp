#include "halftape/amp/scaler_stats.h"

#include <algorithm>

namespace halftape::amp {

int64_t MetOptimizers::meet(uint64_t id, const std::vector<optim::OptimizerParamGroup>& groups) {
  auto met = std::find_if(met_.begin(), met_.end(), [&](const Met& m) { return m.who == id; });
  if (met == met_.end()) met = met_.insert(met, {id, {}});
  met->parameters.clear();
  for (size_t g = 0; g < groups.size(); ++g)
    for (const Tensor& p : groups[g].params()) met->parameters.push_back({g, p.sizes()});
  return met - met_.begin();
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
