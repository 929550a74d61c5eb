#include <cmath>

#include "halftape/amp/laws/laws.h"
#include "halftape/core/check.h"

namespace halftape::amp::laws {
namespace {

void record(Replay& r, const State& s, bool overflow) {
  r.scale.push_back(s.scale);
  r.overflow.push_back(overflow);
}

}  // namespace

Replay replay(const Law& law, const std::vector<bool>& overflow) {
  Replay r;
  r.end = law.start();
  for (const bool bad : overflow) {
    record(r, r.end, bad);
    r.end = law.next(r.end, {.overflow = bad}, law.constants);
  }
  return r;
}

Replay replay_limits(const Law& law, std::span<const double> limits) {
  Replay r;
  r.end = law.start();
  for (const double limit : limits) {
    HALFTAPE_CHECK(limit >= 0, "laws::replay_limits: limit ", limit, " of step ", r.scale.size(),
                   " is not 0 or more");
    const bool overflow = r.end.scale > limit || !std::isfinite(r.end.scale);
    record(r, r.end, overflow);
    r.end = law.next(r.end, {.overflow = overflow, .limit = limit}, law.constants);
  }
  return r;
}

Summary summarise(const Replay& replay, std::span<const double> limits, size_t first) {
  HALFTAPE_CHECK(limits.size() == replay.scale.size() && first < limits.size(),
                 "laws::summarise: ", limits.size(), " limits and ", replay.scale.size(),
                 " steps, from step ", first, "; give those of replay_limits(), and one step");
  Summary sum;
  double best = 0;
  for (size_t i = first; i < limits.size(); ++i) {
    const double scale = replay.scale[i];
    ++sum.steps;
    sum.skips += replay.overflow[i];
    sum.mean_log2_scale += std::log2(scale);
    best += scale <= limits[i] && 2 * scale > limits[i];
  }
  sum.mean_log2_scale /= static_cast<double>(sum.steps);
  sum.best_share = best / static_cast<double>(sum.steps);
  return sum;
}

}  // namespace halftape::amp::laws
