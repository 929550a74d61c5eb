// Tables that functions of float begin with, and what is exact in float.
#pragma once
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "halftape/core/bit_cast.h"

namespace halftape::cpu::math {

namespace detail {

/// Added to a float below 2²², leaves it rounded to a whole number, in the lowest bits.
inline constexpr float kWholeFloat = 0x1.8p23f;

// Taylor's coefficients. (e^−r − 1 + r)/r², |r| ≤ ln 2/32; the second takes as much of the fourth
// term, which is left out, as a line can.
inline constexpr float kBent[] = {0.5f, -0x1.5556dep-3f, 0x1.555556p-5f};
// (ln(1 + r) − r)/r², |r| ≤ 2⁻⁵
inline constexpr float kLog1p[] = {-0.5f, 1 / 3.f, -0.25f, 0.2f, -1 / 6.f};

/// a·b + c, rounded once; where there is no instruction for it, by way of double, which in one of
/// 2²⁹ cases rounds twice.
inline float fused(float a, float b, float c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  return __builtin_fmaf(a, b, c);
#else
  return static_cast<float>(double{a} * b + c);
#endif
}
/// Σ cᵢ·xⁱ from the last to the first.
template <const auto& C, size_t First = 0>
inline float horner(float x) {
  if constexpr (First + 1 == std::size(C))
    return C[First];
  else
    return fused(horner<C, First + 1>(x), x, C[First]);
}

/// 2^(−i/16) as a float, and what that lacks of it, relatively.
struct Sixteenths {
  alignas(64) float power[16], rest[16];
};
inline constexpr Sixteenths kSixteenths = [] {
  Sixteenths s{};
  double exact = 1;
  for (int i = 0; i < 16; ++i, exact *= 0x1.ea4afa2a490dap-1) {
    s.power[i] = static_cast<float>(exact);
    s.rest[i] = static_cast<float>((exact - s.power[i]) / exact);
  }
  return s;
}();

/// Of the mantissas m of a sixteenth of those from 0.7 to 1.4: 1/m by and large, in eight bits
/// below the point, and −ln of that, as a whole number of 2⁻¹⁶ and the rest. Of those about 1: 1,
/// 0.
struct Logarithms {
  alignas(64) float inverse[16], log[16], rest[16];
};
inline constexpr uint32_t kFirstMantissa = 0x3f330000, kAboutOne = 9;
inline constexpr Logarithms kLogarithms = [] {
  Logarithms all{};
  for (uint32_t i = 0; i < 16; ++i) {
    const double middle = bit_cast<float>(kFirstMantissa + (i << 19) + (1u << 18));
    const double inverse = i == kAboutOne ? 1 : static_cast<int>(256 / middle + 0.5) / 256.0;
    const double s = (1 - inverse) / (1 + inverse);  // −ln = 2·artanh
    double exact = 0;
    for (double k = 1, power = s; k < 60; k += 2, power *= s * s) exact += 2 * power / k;
    const double log = static_cast<int>(exact * 65536 + (exact < 0 ? -0.5 : 0.5)) / 65536.0;
    all.inverse[i] = static_cast<float>(inverse);
    all.log[i] = static_cast<float>(log);
    all.rest[i] = static_cast<float>(exact - log);
  }
  return all;
}();

}  // namespace detail

// e^−x by a table of sixteenths: 2^(−n/16)·e^−r, n whole, |r| ≤ ln 2/32.
/// n, in the lowest bits.
inline int32_t sixteenths(float x) {
  return bit_cast<int32_t>(detail::fused(x, 0x1.715476p+4f, detail::kWholeFloat));
}
/// kSixteenths' of n mod 16.
struct Sixteenth {
  float power, rest;
};
inline Sixteenth sixteenth(int32_t n) {
  return {detail::kSixteenths.power[n & 15], detail::kSixteenths.rest[n & 15]};
}
/// e^−x = root·(1 + w + low) = value + rest for −88 < x < 80, of n = sixteenths(x).
struct Falling {
  float root, w, low, value, rest;
  Falling(float x, int32_t whole, Sixteenth table) {
    using detail::fused;
    constexpr float kStep = 0x1.62e430p-5f, kStepRest = -0x1.05c610p-33f;  // ln 2/16
    const float n = bit_cast<float>(whole) - detail::kWholeFloat;
    const float r = fused(n, -kStep, x);  // exact
    const float bent = r * r * detail::horner<detail::kBent>(r);
    const uint32_t exponent = (bit_cast<uint32_t>(whole) & ~15u) << 19;
    root = bit_cast<float>(bit_cast<uint32_t>(table.power) - exponent);
    w = bent - r;
    low = fused(n, kStepRest, table.rest) + (bent - (w + r));
    value = fused(root, w, root);
    rest = fused(value, low, fused(root, w, root - value));
  }
};

/// The exponent of x, above bit 23, which part of kLogarithms' its mantissa lies in, above bit 19.
inline int32_t log_place(float x) {
  return bit_cast<int32_t>(bit_cast<uint32_t>(x) - detail::kFirstMantissa);
}
/// kLogarithms' of a part, of its last four bits.
struct PartOfLog {
  float inverse, log, rest;
};
inline PartOfLog part_of_log(int32_t part) {
  const auto& all = detail::kLogarithms;
  return {all.inverse[part & 15], all.log[part & 15], all.rest[part & 15]};
}

}  // namespace halftape::cpu::math
