// The loss scale's law as a pure function: the same lines run on the host, in a kernel, and in a
// test's table.
#pragma once
#include <cstdint>
#include <limits>

#include "halftape/core/formula/ops.h"

namespace halftape {

/// The constants of the law. Defaults are PyTorch's; the bounds and hysteresis are off.
struct ScalerLaw {
  double growth_factor = 2, backoff_factor = 0.5;
  int64_t growth_interval = 2000;
  double min_scale = 0, max_scale = std::numeric_limits<float>::max();
};

struct ScalerState {
  float scale = 65536;
  int32_t growth_tracker = 0;  // good steps since the scale last changed
};

/// The state after one step: back off at once on an overflow, grow after `growth_interval` good
/// steps in a row.
/// `>=`, not `==`: an interval lowered below the tracker must still lead to growth. The scale never
/// becomes infinite or NaN.
HALFTAPE_HD ScalerState next(ScalerState s, bool found_inf, const ScalerLaw& law) {
  auto bounded = [&](double scale) {
    const double up = scale < law.max_scale ? scale : law.max_scale;
    return static_cast<float>(up > law.min_scale ? up : law.min_scale);
  };
  if (found_inf) return {bounded(s.scale * law.backoff_factor), 0};
  if (++s.growth_tracker < law.growth_interval) return s;
  const double grown = s.scale * law.growth_factor;
  // Growth that would leave float's range is not taken at all, as in PyTorch.
  if (!(static_cast<float>(grown) <= std::numeric_limits<float>::max())) return {s.scale, 0};
  return {bounded(grown), 0};
}

}  // namespace halftape
