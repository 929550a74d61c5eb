// Rounding a float32 to 16 bits, written from the definition: sign, exponent and significand taken
// apart, the part that does not fit compared with one half. Slow and plain; core/half.h is the fast
// one.
#pragma once
#include <cstdint>

#include "halftape/core/half.h"

namespace halftape::testing {

template <class T>
struct Format;
template <>
struct Format<Half> {
  static constexpr int fraction = 10, bias = 15;
};
template <>
struct Format<BFloat16> {
  static constexpr int fraction = 7, bias = 127;
};

template <class T>
constexpr uint16_t infinity16 = static_cast<uint16_t>(0x7fff >> Format<T>::fraction
                                                                    << Format<T>::fraction);

template <class T>
constexpr bool is_nan16(uint16_t bits) {
  return (bits & 0x7fff) > infinity16<T>;
}

template <class T>
constexpr uint16_t round16(uint32_t bits) {
  constexpr int fraction = Format<T>::fraction, bias = Format<T>::bias;
  const auto sign = static_cast<uint16_t>(bits >> 31 << 15);
  const int exponent = static_cast<int>(bits >> 23 & 0xff);
  const uint32_t rest = bits & 0x7fffff;
  if (exponent == 0xff) return static_cast<uint16_t>(sign | infinity16<T> | (rest ? 1u : 0u));
  if (exponent == 0 && rest == 0) return sign;
  // value = significand · 2^(e − 23)
  const uint64_t significand = exponent ? rest | 0x800000u : rest;
  const int e = exponent ? exponent - 127 : -126;
  // The unit in the last place of the result is 2^(step): that of e for normals, the smallest for
  // subnormals.
  const int lowest = 1 - bias - fraction;
  int step = e - fraction;
  if (step < lowest) step = lowest;
  const int drop = step - (e - 23);  // bits of the significand below that unit
  uint64_t units = drop > 40 ? 0 : significand >> drop;
  const uint64_t below = drop > 40 ? 0 : significand - (units << drop),
                 half = drop > 40 ? 1 : (uint64_t{1} << drop) / 2;
  if (drop > 0 && (below > half || (below == half && units % 2 == 1))) ++units;
  if (units >= uint64_t{2} << fraction) units /= 2, ++step;  // rounded up to the next power of two
  if (units < uint64_t{1} << fraction)
    return static_cast<uint16_t>(sign | units);  // subnormal or zero
  const int field = step + fraction + bias;
  if (field >= 0x7fff >> fraction) return sign | infinity16<T>;
  return static_cast<uint16_t>(sign | field << fraction |
                               static_cast<int>(units - (uint64_t{1} << fraction)));
}

}  // namespace halftape::testing
