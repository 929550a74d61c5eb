// Exercise 6: how the scale moves.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

struct Law {
  double growth_factor = 2, backoff_factor = 0.5;
  int64_t growth_interval = 2000;  // good steps in a row before the scale grows
  double min_scale = 0, max_scale = std::numeric_limits<float>::max();
};

struct State {
  float scale = 65536;
  int32_t good_steps = 0;  // since the scale last changed
};

/// The state after a step that did (`found_inf`) or did not overflow.
inline State next_state(State state, bool found_inf, const Law& law) {
  const auto bounded = [&](double scale) {
    return static_cast<float>(std::clamp(scale, law.min_scale, law.max_scale));
  };
  if (found_inf) return {bounded(state.scale * law.backoff_factor), 0};
  if (++state.good_steps < law.growth_interval) return state;
  const double grown = state.scale * law.growth_factor;
  if (!std::isfinite(static_cast<float>(grown))) return {state.scale, 0};
  return {bounded(grown), 0};
}
