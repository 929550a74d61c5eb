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
// (sin r − r)/r³ and (cos r − 1)/r² as functions of r², |r| ≤ π/32; the latter as kBent.
inline constexpr float kSineBent[] = {-1 / 6.f, 1 / 120.f};
inline constexpr float kCosineBent[] = {-0.5f, 0x1.553c3cp-5f};

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

/// Two numbers into column n of rows 0 and 1, and what those floats lack of them into 2 and 3.
template <size_t Rows>
constexpr void split(float (&row)[Rows][16], int n, const double* exact) {
  for (int i = 0; i < 2; ++i) {
    row[i][n] = static_cast<float>(exact[i]);
    row[i + 2][n] = static_cast<float>(exact[i] - row[i][n]);
  }
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

/// Of n·π/16: the sine, the cosine, and what these floats lack of them.
struct PartsOfTurn {
  alignas(64) float row[4][16];
};
inline constexpr PartsOfTurn kPartsOfTurn = [] {
  constexpr double kSine = 0x1.8f8b83c69a60bp-3, kCosine = 0x1.f6297cff75cb0p-1;  // of π/16
  PartsOfTurn all{};
  double exact[] = {0, 1};
  for (int n = 0; n < 16; ++n) {
    if (n == 8) exact[0] = 1, exact[1] = 0;
    split(all.row, n, exact);
    const double sine = exact[0] * kCosine + exact[1] * kSine;
    exact[1] = exact[1] * kCosine - exact[0] * kSine;
    exact[0] = sine;
  }
  return all;
}();

/// erf(c + r) about c = n·kErfStep: the value, the slope, what these floats lack of them, and the
/// coefficients of r² to r⁶. Of steps that reach where erf is 1, the one below leaves the least
/// error in the second part, where the coefficient of r² is close to a float.
struct PartsOfErf {
  alignas(64) float row[9][16];
};
inline constexpr double kErfSlope = 1.12837916709551257390;                  // at 0: 2/√π
inline constexpr float kErfStep = 0x1.03ep-2f, kErfEnd = 15.49f * kErfStep;  // beyond, erf is 1
inline constexpr PartsOfErf kPartsOfErf = [] {
  constexpr int kTerms = 30;
  constexpr double kHalf = kErfStep / 2;
  PartsOfErf all{};
  double value = 0, slope = kErfSlope;
  for (int n = 0; n < 16; ++n) {
    double c[kTerms] = {value, slope};  // Taylor's: erf″ = −2x·erf′
    for (int m = 2; m < kTerms; ++m)
      c[m] = -2 * (n * kErfStep * (m - 1) * c[m - 1] + (m - 2) * c[m - 2]) / (m * (m - 1));
    value = slope = 0;  // of the next part
    for (int m = kTerms; m-- > 0;) {
      slope = slope * kErfStep + value;
      value = value * kErfStep + c[m];
    }
    // The powers above the sixth by lower ones: what is left of each is a multiple of Chebyshev's
    // polynomial of r/kHalf. About 0, where r is positive and the error is to be relative, it is r³
    // times that of √(r/kHalf).
    const bool about_0 = n == 0;
    for (int power = about_0 ? 7 : 12; power > 6; --power) {
      const int degree = about_0 ? 8 : power;
      double t = c[power];
      for (int m = degree, to = power; m > 1; m -= 2) {
        t *=
            m * (m - 1) * (about_0 ? kHalf : kHalf * kHalf) / ((m - 2) * (m - 2) - degree * degree);
        c[to -= about_0 ? 1 : 2] -= t;
      }
    }
    split(all.row, n, c);
    for (int m = 2; m < 7; ++m) all.row[m + 2][n] = static_cast<float>(c[m]);
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
