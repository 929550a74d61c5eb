// The words of formulas for one number. For float: polynomials in double without branches, which
// vectorise, and one rounding at the end, so that subnormal and infinite results are right by
// themselves. For double, and where noted: the standard library's.
//
// scripts/minimax.py derives these coefficients and says how far each polynomial is off,
// relatively: at most 2^-33, which leaves a float within 0.502 ulp. docs/accuracy.md is what was
// measured. In float itself are those that training spends its time in, by tables and in two floats
// where one is too few: exp(), log(), tanh(), sigmoid(), erf, sin and cos up to 1608, and normal(),
// for gelu; and power_of_e().
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>

#include "halftape/core/bit_cast.h"
#include "halftape/core/formula/words.h"
#include "halftape/cpu/vector/tables.h"

namespace halftape::cpu::math {

namespace detail {

inline uint64_t bits(double x) { return bit_cast<uint64_t>(x); }
inline double from_bits(uint64_t x) { return bit_cast<double>(x); }
inline double choose(bool c, double a, double b) { return c ? a : b; }

/// Σ cᵢ·xⁱ in groups of four, each a tree (Estrin's scheme): a chain as long as the degree would be
/// waited for.
template <const auto& C, size_t First, size_t Count>
inline double terms(double x, double x2, double x4) {
  if constexpr (Count == 1)
    return C[First];
  else if constexpr (Count == 2)
    return C[First] + C[First + 1] * x;
  else if constexpr (Count <= 4)
    return terms<C, First, 2>(x, x2, x4) + terms<C, First + 2, Count - 2>(x, x2, x4) * x2;
  else
    return terms<C, First, 4>(x, x2, x4) + terms<C, First + 4, Count - 4>(x, x2, x4) * x4;
}
template <const auto& C>
inline double polynomial(double x) {
  const double x2 = x * x;
  return terms<C, 0, std::size(C)>(x, x2, x2 * x2);
}

// f·coth(f·ln 2/2) as a function of f², f in [−½, ½]
inline constexpr double kExp2[] = {0x1.71547652ba4b0p+1, 0x1.d9303fc86465fp-4,
                                   -0x1.e4ff442f28325p-11, 0x1.60f51a41feedap-17};
// 2·artanh(√z)/√z on [0, (√2 − 1)⁴]
inline constexpr double kLog[] = {0x1.0000000004a19p+1, 0x1.555554dad2ba2p-1, 0x1.999a9c8d481fbp-2,
                                  0x1.2432c0e8c37d9p-2, 0x1.e3af8a088df83p-3};
// sin(√u)/√u and cos √u on [0, (π/4)²]
inline constexpr double kSin[] = {0x1.fffffffff6046p-1, -0x1.55555548e28c5p-3, 0x1.11110717fc606p-7,
                                  -0x1.a00ec6c771a9bp-13, 0x1.6cb09592c8ddbp-19};
inline constexpr double kCos[] = {0x1.ffffffff84dbap-1, -0x1.ffffffb66b564p-2, 0x1.555538a526245p-5,
                                  -0x1.6c06eafa59576p-10, 0x1.98e7bcb6c70f0p-16};
// (x + 3)·e^x²·erfc x as a function of (x − 3)/(x + 3), x in [0, 10.1]
inline constexpr double kErfc[] = {
    0x1.12f21ddd9acc8p+0,   -0x1.c44c472123252p-1,  0x1.2e32694eec6f5p-1,   -0x1.3deb1eefa3498p-2,
    0x1.e995eb3c3c7ffp-4,   -0x1.b78bd7ecc0c99p-6,  -0x1.3dd4e7c8a4e37p-10, 0x1.8e259c529459dp-9,
    -0x1.1e6c7cbcda009p-11, -0x1.2d0adcbd1b0e7p-12, 0x1.95d09c912727bp-14,  0x1.4f1edd9cd31a1p-15};

// (2ᶠ − 1)/f, f in [−½, ½]
inline constexpr float kPower[] = {0x1.62e430p-1f, 0x1.ebfbdcp-3f,  0x1.c6aee8p-5f,
                                   0x1.3b2d4cp-7f, 0x1.5f3e70p-10f, 0x1.41fceep-13f};

inline constexpr double kLog2e = 1.44269504088896340736, kLn2 = 0.69314718055994530942,
                        kLog10e = 0.43429448190325182765, kLog10Of2 = 0.30102999566398119521;

/// Added to a double below 2⁵¹, leaves it rounded to a whole number, in the lowest bits.
inline constexpr double kWhole = 0x1.8p52;

/// 2ᵗ = a/b, |t| < 500: with t = n + f, n whole, 2ᶠ = (g + f)/(g − f) where g = f·coth(f·ln 2/2),
/// which is even and all but constant.
struct PowerOfTwo {
  double a, b, difference;  // difference: a − b, with all its digits; −0 for t = −0
  explicit PowerOfTwo(double t) {
    const double whole = t + kWhole, f = t - (whole - kWhole), g = polynomial<kExp2>(f * f);
    const double scale = from_bits((bits(whole) << 52) + bits(1.0));  // 2ⁿ
    a = scale * (g + f);
    b = g - f;
    difference = (scale + 1) * f - (1 - scale) * g;
  }
};

/// −ln u as exponent·ln 2 − ln m, m between √½ and √2; of 1 + small, which is believed where that
/// is near 1. For u from 2⁻¹⁰²² up to the largest number.
struct Logarithm {
  double minus_exponent, mantissa;  // mantissa: ln m
  explicit Logarithm(double u) {
    const double m = split(u);
    mantissa = of(m - 1);
  }
  Logarithm(double u, double small) {
    const double m = split(u);
    mantissa = of(choose(minus_exponent == 0, small, m - 1));
  }

 private:
  double split(double u) {
    constexpr uint64_t kRootHalf = 0x3fe6a09e00000000;
    const uint64_t shifted = bits(u) + (bits(1.0) - kRootHalf);
    minus_exponent = (0x1p52 + 1023) - from_bits((shifted >> 52) | bits(0x1p52));
    return from_bits((shifted & 0x000fffffffffffff) + kRootHalf);
  }
  static double of(double f) {  // ln(1 + f) = 2·artanh(f/(2 + f))
    const double s = f / (2 + f);
    return s * polynomial<kLog>(s * s);
  }
};
inline double log1p(double small) {
  const Logarithm l(1 + small, small);
  return l.mantissa - l.minus_exponent * kLn2;
}
/// y where it is the logarithm of a positive number: of x − least, by and large. Otherwise −∞, NaN,
/// or x itself.
inline float logarithm_of(float x, float least, double y) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const float below = x < least ? std::numeric_limits<float>::quiet_NaN() : x;
  const float special = x == least ? -infinity : below;
  const float value = x < infinity ? static_cast<float>(y) : special;
  return x > least ? value : special;
}

/// The sine and cosine of a float up to 2¹⁹.
struct Angle {
  double sine, cosine;  // of what whole quarters of a turn leave
  uint64_t quarters;
  explicit Angle(double x) {
    // π/2 as 33 bits, whose multiples are exact, and the rest. Cody & Waite 1980.
    constexpr double kHigh = 0x1.921fb544p+0, kLow = 0x1.0b4611a626331p-34;
    const double whole = x * 0.63661977236758134308 + kWhole, n = whole - kWhole;
    const double r = (x - n * kHigh) - n * kLow, u = r * r;
    quarters = bits(whole);
    sine = r * polynomial<kSin>(u);
    cosine = polynomial<kCos>(u);
  }
  /// sin(x + k·π/2)
  double turned(uint64_t k) const {
    const uint64_t q = quarters + k;
    return from_bits(bits(choose(q & 1, cosine, sine)) ^ (q >> 1 << 63));
  }
};

inline float clamped(float x, float low, float high) {  // NaN stays
  const float y = x < low ? low : x;
  return y > high ? high : y;
}

}  // namespace detail

#define HALFTAPE_STANDARD_WORD(word, from) \
  inline double word(double x) { return from::word(x); }
#define HALFTAPE_DOUBLE_WORD(word, from) \
  HALFTAPE_STANDARD_WORD(word, from)     \
  inline float word(float x) { return static_cast<float>(from::word(static_cast<double>(x))); }
HALFTAPE_STANDARD_WORD(exp, std)
HALFTAPE_STANDARD_WORD(exp2, std)
HALFTAPE_STANDARD_WORD(expm1, std)
HALFTAPE_STANDARD_WORD(log, std)
HALFTAPE_STANDARD_WORD(log1p, std)
HALFTAPE_STANDARD_WORD(log2, std)
HALFTAPE_STANDARD_WORD(log10, std)
HALFTAPE_DOUBLE_WORD(asin, std)
HALFTAPE_DOUBLE_WORD(acos, std)
HALFTAPE_DOUBLE_WORD(atan, std)
HALFTAPE_STANDARD_WORD(sinh, std)
HALFTAPE_STANDARD_WORD(cosh, std)
HALFTAPE_STANDARD_WORD(tanh, std)
HALFTAPE_STANDARD_WORD(asinh, std)
HALFTAPE_STANDARD_WORD(acosh, std)
HALFTAPE_STANDARD_WORD(atanh, std)
HALFTAPE_STANDARD_WORD(erf, std)
HALFTAPE_STANDARD_WORD(erfc, std)
HALFTAPE_STANDARD_WORD(sigmoid, halftape)
HALFTAPE_DOUBLE_WORD(erfinv, halftape)
HALFTAPE_DOUBLE_WORD(sinpi, halftape)
HALFTAPE_DOUBLE_WORD(cospi, halftape)
#undef HALFTAPE_STANDARD_WORD
#undef HALFTAPE_DOUBLE_WORD

inline float exp2(float x) {
  const detail::PowerOfTwo e(detail::clamped(x, -151, 129));
  return static_cast<float>(e.a / e.b);
}
inline float expm1(float x) {
  const detail::PowerOfTwo e(detail::clamped(x, -20, 90) * detail::kLog2e);
  return static_cast<float>(e.difference / e.b);
}
inline float sinh(float x) {  // (a/b − b/a)/2
  const detail::PowerOfTwo e(detail::clamped(x, -91, 91) * detail::kLog2e);
  return static_cast<float>(e.difference * (e.a + e.b) / (2 * e.a * e.b));
}
inline float cosh(float x) {
  const detail::PowerOfTwo e(detail::clamped(x, -91, 91) * detail::kLog2e);
  return static_cast<float>((e.a * e.a + e.b * e.b) / (2 * e.a * e.b));
}

/// Whether near_exp() is right: e^x, and what lies below its last place, are no subnormal numbers.
inline bool is_near_exp(float x) { return x > -70 && x < 88; }
/// Within 0.54 ulp. `whole` is sixteenths(−x).
inline float near_exp(float x, int32_t whole, Sixteenth table) {
  using detail::fused;
  const float n = bit_cast<float>(whole) - detail::kWholeFloat;
  const float r = fused(n, -kSixteenthRest, fused(n, -kSixteenth, -x));
  const float bent = fused(r * r, detail::horner<detail::kBent>(r), table.rest);
  const float power = root(whole, table.power);
  return fused(power, bent - r, power);
}
// Arguments are clamped to where the result is 0, 1 or infinite already.
inline float far_exp(float x) {
  const detail::PowerOfTwo e(detail::clamped(x, -105, 90) * detail::kLog2e);
  return static_cast<float>(e.a / e.b);
}

/// Where tanh is 1, or less; of NaN a number.
inline float tanh_distance(float x) {
  const float distance = std::fabs(x);
  return distance < 9.3f ? distance : 9.3f;
}
/// Within 0.6 ulp. `distance` is tanh_distance(x), row(i) that of kPartsOfTanh.
template <class Row>
[[gnu::always_inline]] inline float tanh(float x, float distance, Row row) {
  using detail::fused;
  const float r = distance - row(0);  // exact
  const float value = fused(row(2), r, row(1)), rest = fused(row(2), r, row(1) - value);
  const float size = value + fused(detail::horner_of_rows<3, 7>(r, row) * r, r, rest);
  return x == x ? std::copysign(size, x) : x;
}

/// Whether near_sigmoid() is right: 1 + e^−x keeps its 1 in two floats, and x is no NaN.
inline bool is_near_sigmoid(float x) { return x > -16 && x < 80; }
/// 1/(1 + e^−x), within 0.501 ulp.
inline float near_sigmoid(float x, int32_t whole, Sixteenth table) {
  using detail::fused;
  const Falling e(x, whole, table);
  const float d = 1 + e.value, d_rest = (1 - d + e.value) + e.rest, q = 1 / d;
  return fused(q, fused(-q, d, 1) - q * d_rest, q);
}
inline float far_sigmoid(float x) {
  const detail::PowerOfTwo e(detail::clamped(x, -105, 90) * detail::kLog2e);
  return static_cast<float>(e.a / (e.a + e.b));
}

/// Whether near_log() is right.
inline bool is_near_log(float x) {
  return x >= std::numeric_limits<float>::min() && x < std::numeric_limits<float>::infinity();
}
/// x = 2^exponent·m, ln m = ln c + ln(1 + t) with t = (m − c)/c. Within 0.57 ulp. `place` is
/// log_place(x), row(i) that of kPartsOfLog.
template <class Row>
[[gnu::always_inline]] inline float near_log(float x, int32_t place, Row row) {
  using detail::fused;
  // For an exponent above bit 23: its multiples of the first are exact, and so is `high`.
  constexpr float kLn2 = 0x1.62e4p-24f, kLn2Rest = 0x1.7f7d1cp-43f;
  const uint32_t above = bit_cast<uint32_t>(place) & ~0u << 23;
  const auto exponent = static_cast<float>(bit_cast<int32_t>(above));
  const float r = bit_cast<float>(bit_cast<uint32_t>(x) - above) - row(0);  // exact
  const float high = fused(exponent, kLn2, row(1)), t = row(2) * r;
  const float sum = fused(row(2), r, high), rest = fused(row(2), r, high - sum);
  return sum + fused(t * t, detail::horner<detail::kLog1p>(t), fused(exponent, kLn2Rest, rest));
}
inline float far_log(float x) {
  const detail::Logarithm l(x);
  return detail::logarithm_of(x, 0, l.mantissa - l.minus_exponent * detail::kLn2);
}
/// ln x of one number, of float the same on every system.
inline float logarithm(float x) { return far_log(x); }
inline double logarithm(double x) { return std::log(x); }
inline float log1p(float x) { return detail::logarithm_of(x, -1, detail::log1p(x)); }
inline float log2(float x) {
  const detail::Logarithm l(x);
  return detail::logarithm_of(x, 0, l.mantissa * detail::kLog2e - l.minus_exponent);
}
inline float log10(float x) {
  const detail::Logarithm l(x);
  return detail::logarithm_of(x, 0,
                              l.mantissa * detail::kLog10e - l.minus_exponent * detail::kLog10Of2);
}
inline float asinh(float x) {
  const double a = std::fabs(x);
  const double y = detail::log1p(a + a * a / (1 + std::sqrt(a * a + 1)));
  const float size = a < std::numeric_limits<double>::infinity() ? static_cast<float>(y) : x;
  return std::copysign(size, x);
}
inline float acosh(float x) {
  const double over = x - 1.0, y = detail::log1p(over + std::sqrt(over * (over + 2)));
  const float value = x < std::numeric_limits<float>::infinity() ? static_cast<float>(y) : x;
  return x < 1 ? std::numeric_limits<float>::quiet_NaN() : value;
}
inline float atanh(float x) {
  const double a = std::fabs(x), y = 0.5 * detail::log1p(2 * a / (1 - a));
  const float beyond = a > 1 ? std::numeric_limits<float>::quiet_NaN() : x;
  const float special = a == 1 ? std::numeric_limits<float>::infinity() : beyond;
  return std::copysign(a < 1 ? static_cast<float>(y) : special, x);
}

/// Whether near_erf() is right: what rounding took from a smaller product is no float. Not of NaN.
inline bool is_near_erf(float x) { return std::fabs(x) > 0x1p-100f || x == 0; }
inline float erf_distance(float x) {
  const float distance = std::fabs(x);
  return distance < detail::kErfEnd ? distance : detail::kErfEnd;
}
/// The column of kPartsOfErf, in the lowest bits.
inline int32_t erf_place(float distance) {
  return bit_cast<int32_t>(detail::fused(distance, 1 / detail::kErfStep, detail::kWholeFloat));
}
/// Within 0.53 ulp. `distance` is erf_distance(x), `place` of it, row(i) that of kPartsOfErf.
template <class Row>
[[gnu::always_inline]] inline float near_erf(float x, float distance, int32_t place, Row row) {
  using detail::fused;
  const float n = bit_cast<float>(place) - detail::kWholeFloat;
  const float r = fused(n, -detail::kErfStep, distance);  // exact
  const float value = fused(row(1), r, row(0));
  const float rest = row(2) + fused(row(1), r, row(0) - value);
  return std::copysign(value + fused(detail::horner_of_rows<3, 8>(r, row), r, rest), x);
}
inline float far_erf(float x) { return static_cast<float>(x * detail::kErfSlope); }
inline float erfc(float x) {
  const double size = detail::clamped(x < 0 ? -x : x, 0, 10.1f), r = 1 / (size + 3);
  const detail::PowerOfTwo e(size * size * -detail::kLog2e);
  const double tail = detail::polynomial<detail::kErfc>(1 - 6 * r) * r * e.a / e.b;
  return static_cast<float>(detail::choose(x < 0, 2 - tail, tail));
}
/// e^x for x ≤ 0 in float, within 1.2 ulp: for a softmax, whose sum is further off.
inline float power_of_e(float x) {
  using detail::fused;
  constexpr float kRate = 0x1.715476p0f, kRateRest = 0x1.4ae0cp-26f;  // log₂e and what it lacks
  // What rounds to 0, half of a causal attention, is not worked out: that would be an underflow,
  // which takes a processor long.
  const bool gone = x < -104;
  const float y = gone || x > 0 ? 0 : x;
  const float whole = fused(y, kRate, detail::kWholeFloat), n = whole - detail::kWholeFloat;
  const float f = fused(y, kRateRest, fused(y, kRate, -n));
  // By 2^(n + 64), so that only the result may be subnormal.
  const float scale = bit_cast<float>((bit_cast<uint32_t>(whole) << 23) + (191u << 23));
  const float power = fused(f, detail::horner<detail::kPower>(f), 1) * scale * 0x1p-64f;
  return gone ? 0 : power;
}
inline double power_of_e(double x) { return std::exp(x); }

/// How far x is from 0, up to where Φ(−x) is 0; of NaN a number.
inline float normal_distance(float x) {
  const float distance = std::fabs(x);
  return distance < 14.9f ? distance : 14.9f;
}
/// Φ and the density, in float, with one e^(−x²/2), which is gelu's time: Φ within 1.4 ulp for
/// x > 0, 3 for x > −1, and 4 in the tail. `distance` is normal_distance(x), row(i) that of
/// kPartsOfMills.
template <class Row>
[[gnu::always_inline]] inline Normal<float> normal(float x, float distance, Row row) {
  using detail::fused;
  constexpr float kRate = 0x1.715476p-1f, kRateRest = 0x1.4ae0cp-27f;  // log₂e/2 and what it lacks
  const float square = distance * distance;
  const float whole = fused(square, -kRate, detail::kWholeFloat), n = whole - detail::kWholeFloat;
  float f = fused(square, -kRate, -n);  // −x²·log₂e/2 = n + f, with the digits that x² has lost
  f = fused(square, -kRateRest, f);
  f = fused(fused(distance, distance, -square), -kRate, f);
  const float fraction = fused(f, detail::horner<detail::kPower>(f), 1);
  // By 2⁶⁴, so that only the results may be subnormal.
  const float power = bit_cast<float>((bit_cast<uint32_t>(whole) << 23) +
                                      bit_cast<uint32_t>(fraction) + (64u << 23));
  const float r = distance - row(0);
  const float tail = detail::horner_of_rows<1, 6>(r, row) * power;
  return {x > 0 ? 1 - tail : tail, 0.39894228f * 0x1p-64f * power};
}

// Sines by a table: ±sin(n·π/16 + r), |r| ≤ π/32. A cosine is the sine of |x| and a quarter of a
// turn: n begins at 8.
inline constexpr float kSineStart = detail::kWholeFloat, kCosineStart = detail::kWholeFloat + 8;
/// Whether near_sine() is right: |x| is at most 2¹³·π/16, and no NaN, whose sign is to stay.
inline bool is_near_sine(float x) { return std::fabs(x) <= 1608; }
/// n in the lowest bits: the column of kPartsOfTurn, above it whether the sign changes.
inline int32_t turn_place(float x, float start) {
  return bit_cast<int32_t>(detail::fused(std::fabs(x), 0x1.45f306p+2f, start));
}
/// Within 0.53 ulp. `place` is turn_place(x, start), row(i) that of kPartsOfTurn.
template <class Row>
[[gnu::always_inline]] inline float near_sine(float x, float start, int32_t place, Row row) {
  using detail::fused;
  // π/16 in parts: n times the second is exact, n times the third far below r.
  constexpr float kStep = 0x1.921fb4p-3f, kSecond = 0x1.444p-27f, kThird = 0x1.68c234p-42f;
  const float n = bit_cast<float>(place) - start, left = fused(n, -kStep, std::fabs(x));  // exact
  const float r = fused(n, -kSecond, left), square = r * r;
  const float low = fused(n, -kThird, fused(n, -kSecond, left - r));
  const float value = fused(row(1), r, row(0));
  const float rest = row(2) + fused(row(1), r, row(0) - value);
  const float sine = fused(square * r, detail::horner<detail::kSineBent>(square), low);
  const float cosine = square * detail::horner<detail::kCosineBent>(square);
  const float bent = fused(row(1), sine, fused(row(0), cosine, fused(row(3), r, rest)));
  const uint32_t odd = start == kSineStart ? bit_cast<uint32_t>(x) : 0;
  const uint32_t sign = (static_cast<uint32_t>(place) << 27 ^ odd) & 1u << 31;
  return bit_cast<float>(bit_cast<uint32_t>(value + bent) ^ sign);
}
// In double up to 2¹⁹; beyond, the standard library's.
inline bool is_far(float x) { return std::fabs(x) > 0x1p19f; }
inline float angle_sin(float x) { return static_cast<float>(detail::Angle(x).turned(0)); }
inline float angle_cos(float x) { return static_cast<float>(detail::Angle(x).turned(1)); }
inline float angle_tan(float x) {
  const detail::Angle a(x);
  return static_cast<float>(a.turned(0) / a.turned(1));
}

}  // namespace halftape::cpu::math
