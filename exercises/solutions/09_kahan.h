// Exercise 9: add small updates to a bfloat16 weight.
#pragma once
#include <halftape/core/half.h>

#include <cmath>

/// Adds `update` to the weight. `lost` is what rounding took away so far, 0 at first.
inline void kahan_step(halftape::BFloat16& weight, halftape::BFloat16& lost, float update) {
  const float wanted = static_cast<float>(weight) + static_cast<float>(lost) + update;
  weight = halftape::BFloat16(wanted);
  const float got = static_cast<float>(weight);
  lost = halftape::BFloat16(std::isfinite(got) ? wanted - got : 0.0f);
}
