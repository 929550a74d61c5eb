// Exercise 11: a tensor's scale from what was seen of it. README.md says what is asked.
#pragma once
#include <algorithm>
#include <cmath>
#include <span>
#include <stdexcept>

struct Format {
  float largest;  // finite number
};
inline constexpr Format kE4M3{448}, kE5M2{57344};

/// `history`: the largest sizes of the tensor in the last steps. `current`: the scale as it is.
inline float scale_for(std::span<const float> history, Format format, int margin, float current) {
  // At most 15 lines of yours instead of this one.
  throw std::logic_error("scale_for() is not written yet");
}
