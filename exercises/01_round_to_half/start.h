// Exercise 1: the half that is nearest to a float. README.md says what is asked.
#pragma once
#include <cmath>
#include <cstdint>
#include <stdexcept>

/// The bits of the half nearest to `value`; of two that are equally near, the one whose last bit is
/// 0. What is too large becomes infinity, with its sign, and NaN becomes any NaN.
inline uint16_t half_of(float value) {
  // At most 15 lines of yours instead of this one.
  throw std::logic_error("half_of() is not written yet");
}
