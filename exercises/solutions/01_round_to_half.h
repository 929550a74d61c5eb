// Exercise 1: the half that is nearest to a float.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

inline uint16_t half_of(float value) {
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const float size = std::fabs(value);
  if (std::isnan(value)) return static_cast<uint16_t>(sign | 0x7e00);
  if (size >= 65520) return static_cast<uint16_t>(sign | 0x7c00);
  const int exponent = std::max(std::ilogb(size), -14);
  const int steps =
      static_cast<int>(std::nearbyint(std::ldexp(size, 10 - exponent)));  // ties to even
  return static_cast<uint16_t>(sign | ((exponent + 14) * 1024 + steps));
}
