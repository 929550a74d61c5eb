// Exercise 5: divide by the scale, and say whether something is not finite.
#pragma once
#include <cmath>
#include <span>
#include <vector>

/// Divides all numbers by `scale`, in place. True if one of them is infinite or NaN, before or
/// after.
inline bool unscale_(std::span<std::vector<float>> gradients, float scale) {
  bool found_inf = false;
  for (std::vector<float>& gradient : gradients)
    for (float& x : gradient) {
      x /= scale;
      found_inf |= !std::isfinite(x);
    }
  return found_inf;
}
