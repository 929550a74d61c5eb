// Where a number lies between the powers of two.
#pragma once
#include <cstdint>

#include "halftape/core/bit_cast.h"
#include "halftape/core/host_device.h"

namespace halftape {

/// Slots of a count by powers of two. Slot 2·e + p counts the numbers with 2^(e−127) ≤ |x| <
/// 2^(e−126), those equal to 2^(e−127) where p is 1, the others where it is 0. Slot 0: 0 < |x| <
/// 2^-126. Slot 1: zeros. Slot 510: NaN. Slot 511: inf. These are the bits of a float32 number.
inline constexpr int kExponentSlots = 512;

HALFTAPE_HD constexpr int exponent_slot(float x) {
  const auto bits = bit_cast<uint32_t>(x);
  return static_cast<int>(bits >> 22 & 0x1fe) | static_cast<int>((bits & 0x7fffff) == 0);
}
/// A number beyond float32's counts in slot 508, as its largest.
HALFTAPE_HD constexpr int exponent_slot(double x) {
  const auto bits = bit_cast<uint64_t>(x) & 0x7fffffffffffffff;
  const int power = (bits & 0xfffffffffffff) == 0, exponent = static_cast<int>(bits >> 52) - 896;
  if (exponent == 2047 - 896) return 510 | power;
  if (exponent < 1) return bits == 0;
  return exponent > 254 ? 508 : 2 * exponent + power;
}

}  // namespace halftape
