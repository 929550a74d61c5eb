// Exercise 5: divide by the scale, and say whether something is not finite. README.md says what is
// asked.
#pragma once
#include <cmath>
#include <span>
#include <vector>

/// Divides all numbers by `scale`, in place. True if one of them is infinite or NaN, before or
/// after.
inline bool unscale_(std::span<std::vector<float>> gradients, float scale) {
  // Mend this: at most 15 lines.
  for (std::vector<float>& gradient : gradients) {
    for (const float x : gradient)
      if (!std::isfinite(x)) return true;
    for (float& x : gradient) x *= 1 / scale;
  }
  return false;
}
