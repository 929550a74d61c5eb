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
// (ln(1 + t) − t)/t², |t| ≤ 2⁻⁵: by scripts/minimax.py
inline constexpr float kLog1p[] = {-0x1.fffffcp-2f, 0x1.555550p-2f, -0x1.00353cp-2f,
                                   0x1.9a12bcp-3f};
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

/// Σ row(First + i)·xⁱ, to the last row.
template <int First, int Last, class Row>
[[gnu::always_inline]] inline float horner_of_rows(float x, Row row) {
  if constexpr (First == Last)
    return row(Last);
  else
    return fused(horner_of_rows<First + 1, Last>(x, row), x, row(First));
}

/// Two numbers into column n of rows 0 and 1, and what those floats lack of them into 2 and 3.
template <size_t Rows>
constexpr void split(float (&row)[Rows][16], int n, const double* exact) {
  for (int i = 0; i < 2; ++i) {
    row[i][n] = static_cast<float>(exact[i]);
    row[i + 2][n] = static_cast<float>(exact[i] - row[i][n]);
  }
}

/// 2^(−i/16) as a float, to whose bits i is added above the 19th: what root() takes away again. And
/// what that float lacks, relatively.
struct Sixteenths {
  alignas(64) float power[16], rest[16];
};
inline constexpr Sixteenths kSixteenths = [] {
  Sixteenths s{};
  double exact = 1;
  for (int i = 0; i < 16; ++i, exact *= 0x1.ea4afa2a490dap-1) {
    const auto power = static_cast<float>(exact);
    s.power[i] = bit_cast<float>(bit_cast<uint32_t>(power) + (static_cast<uint32_t>(i) << 19));
    s.rest[i] = static_cast<float>((exact - power) / exact);
  }
  return s;
}();

/// Values of sixteen parts of a function's domain, one column for each part. Those of log and tanh
/// are of a c in the part where c, f(c) and f′(c) are almost exactly floats (Gal 1986), which
/// scripts/minimax.py looks for.
template <size_t Rows>
struct Parts {
  alignas(64) float row[Rows][16];
};

/// Of the mantissas from 0.7 to 1.4: c, ln c to 2⁻¹⁷, 1/c.
inline constexpr uint32_t kFirstMantissa = 0x3f334000;
inline constexpr Parts<3> kPartsOfLog{{
    {0x1.6f0b8ap-1f, 0x1.7eb69ap-1f, 0x1.8f8434p-1f, 0x1.9df0f2p-1f, 0x1.afd0c4p-1f, 0x1.bf4978p-1f,
     0x1.cab48ep-1f, 0x1.dc87d8p-1f, 0x1.f25e4cp-1f, 1, 0x1.0e8d04p0f, 0x1.1e1064p0f, 0x1.2e89ccp0f,
     0x1.3f03f8p0f, 0x1.4ee3bap0f, 0x1.60a0c4p0f},
    {-0x1.54d400p-2f, -0x1.2a0600p-2f, -0x1.fc0c00p-3f, -0x1.b36800p-3f, -0x1.5cd400p-3f,
     -0x1.14bc00p-3f, -0x1.c23800p-4f, -0x1.261000p-4f, -0x1.ba2000p-6f, 0, 0x1.c4e000p-5f,
     0x1.c6d000p-4f, 0x1.561400p-3f, 0x1.c2b000p-3f, 0x1.131200p-2f, 0x1.47ec00p-2f},
    {0x1.6519bep0f, 0x1.567b1ep0f, 0x1.48139ep0f, 0x1.3ca4dep0f, 0x1.2f897cp0f, 0x1.2509aep0f,
     0x1.1dbe4ep0f, 0x1.130e02p0f, 0x1.070094p0f, 1, 0x1.e476a6p-1f, 0x1.ca30eep-1f, 0x1.b13db6p-1f,
     0x1.9add32p-1f, 0x1.876384p-1f, 0x1.73b354p-1f},
}};
/// tanh(c + r): c, tanh c, its derivative, and the coefficients of r² to r⁶.
inline constexpr Parts<8> kPartsOfTanh{{
    {0x1.0000acp-1f, 0x1.7ffcb6p-1f, 0x1.ffe8d0p-1f, 0x1.400286p0f, 0x1.9ff48cp0f, 0x1.0d4fe0p1f,
     0x1.4f0782p1f, 0x1.90867cp1f, 0x1.f387dap1f, 0x1.3a529ap2f, 0x1.74dc80p2f, 0x1.b8bf26p2f,
     0x1.0a2b02p3f, 0, 0x1.800092p-3f, 0x1.4009fap-2f},
    {0x1.d9364cp-2f, 0x1.453048p-1f, 0x1.85e5eep-1f, 0x1.b253a6p-1f, 0x1.d9c3b0p-1f, 0x1.f0fd7cp-1f,
     0x1.fa92c6p-1f, 0x1.fe0b0ap-1f, 0x1.ff9530p-1f, 0x1.fff1cap-1f, 0x1.fffdb8p-1f, 0x1.ffffbap-1f,
     0x1.fffffcp-1f, 0, 0x1.7b9086p-3f, 0x1.36029ap-2f},
    {0x1.92a8cap-1f, 0x1.317630p-1f, 0x1.ae2b6cp-2f, 0x1.1f2046p-2f, 0x1.267694p-3f, 0x1.d94624p-5f,
     0x1.597752p-6f, 0x1.f400ecp-8f, 0x1.ab1370p-10f, 0x1.c6b9aep-13f, 0x1.23ff64p-15f,
     0x1.17ffb4p-18f, 0x1.00021ep-22f, 1, 0x1.ee69d6p-1f, 0x1.d112b6p-1f},
    {-0x1.7427a8p-2f, -0x1.8404a8p-2f, -0x1.479510p-2f, -0x1.e7228cp-3f, -0x1.107910p-3f,
     -0x1.cb6652p-5f, -0x1.55cdecp-6f, -0x1.f217c4p-8f, -0x1.aabf38p-10f, -0x1.c6b3d2p-13f,
     -0x1.23fb20p-15f, -0x1.17fec0p-18f, -0x1.ffd6f2p-23f, -0x1.434cfcp-25f, -0x1.6e86e8p-3f,
     -0x1.1998b4p-2f},
    {-0x1.81d9c8p-4f, 0x1.56663cp-5f, 0x1.a84928p-4f, 0x1.bba1fap-4f, 0x1.33f726p-4f,
     0x1.202dd2p-5f, 0x1.be0bdap-7f, 0x1.4982ccp-8f, 0x1.1bdc8cp-10f, 0x1.2ee178p-13f,
     0x1.851bfap-16f, 0x1.75194ap-19f, 0x1.51f466p-23f, -0x1.555434p-2f, -0x1.27a462p-2f,
     -0x1.c19244p-3f},
    {0x1.5148c0p-3f, 0x1.98a1aep-4f, 0x1.c5a7c4p-6f, -0x1.9c745cp-7f, -0x1.9d4362p-6f,
     -0x1.fa4e9cp-7f, -0x1.aaf14ep-8f, -0x1.446e0ep-9f, -0x1.1a565ap-11f, -0x1.2ddd90p-14f,
     -0x1.86395ep-17f, -0x1.74fbd2p-20f, -0x1.56a330p-24f, -0x1.51e9c6p-13f, 0x1.cf8a48p-4f,
     0x1.43e5d4p-3f},
    {-0x1.b335a2p-6f, -0x1.044986p-4f, -0x1.7b82b6p-5f, -0x1.3baee0p-6f, 0x1.3a36ccp-10f,
     0x1.28ad66p-8f, 0x1.38aa86p-9f, 0x1.fab110p-11f, 0x1.d10252p-13f, 0x1.f49118p-16f,
     0x1.415c7cp-18f, 0x1.355582p-21f, 0x1.389e7ep-25f, 0x1.167160p-3f, 0x1.8a2fbcp-4f,
     0x1.628bccp-5f},
    {-0x1.a10fbep-5f, -0x1.60ed16p-10f, 0x1.5d86aep-6f, 0x1.ec55d6p-7f, 0x1.1479b0p-8f,
     -0x1.17a1acp-11f, -0x1.4d47cap-11f, -0x1.3e602cp-12f, -0x1.430c92p-14f, -0x1.6729d8p-17f,
     -0x1.87392ep-20f, -0x1.a29c1ap-23f, -0x1.785c80p-27f, -0x1.3e9aaap-6f, -0x1.ed724ep-5f,
     -0x1.3ec932p-4f},
}};
/// 2⁻⁶⁴·e^(x²/2)·(1 − Φ(x)), x = c + r: c, and the coefficients of 1 to r⁵.
inline constexpr Parts<7> kPartsOfMills{{
    {0x1.000000p-3f, 0x1.800000p-2f, 0x1.400000p-1f, 0x1.c00000p-1f, 0x1.400000p0f, 0x1.c00000p0f,
     0x1.200000p1f, 0x1.600000p1f, 0x1.c00000p1f, 0x1.200000p2f, 0x1.600000p2f, 0x1.a00000p2f,
     0x1.000000p3f, 0x1.400000p3f, 0x1.800000p3f, 0x1.c00000p3f},
    {0x1.d0af2cp-66f, 0x1.84b706p-66f, 0x1.4b1de2p-66f, 0x1.1e7c2ep-66f, 0x1.d898dep-67f,
     0x1.7b5abep-67f, 0x1.3aaddep-67f, 0x1.0bb968p-67f, 0x1.b396fcp-68f, 0x1.5b5acep-68f,
     0x1.201faap-68f, 0x1.eba5fep-69f, 0x1.926974p-69f, 0x1.43a38cp-69f, 0x1.0e7dcep-69f,
     0x1.d087aep-70f},
    {-0x1.5e6e6ep-66f, -0x1.06bfb2p-66f, -0x1.93234ep-67f, -0x1.3baf58p-67f, -0x1.c4931ep-68f,
     -0x1.3253b8p-68f, -0x1.b405ccp-69f, -0x1.432b18p-69f, -0x1.b60394p-70f, -0x1.1be2c8p-70f,
     -0x1.8b1956p-71f, -0x1.21ae92p-71f, -0x1.86b850p-72f, -0x1.fbf2d4p-73f, -0x1.63cfc6p-73f,
     -0x1.06cdbep-73f},
    {0x1.a4e0d2p-67f, 0x1.222ed8p-67f, 0x1.9a455cp-68f, 0x1.28bebcp-68f, 0x1.7b775ap-69f,
     0x1.bd43d4p-70f, 0x1.15a98cp-70f, 0x1.6c5d6cp-71f, 0x1.a296bap-72f, 0x1.bfb660p-73f,
     0x1.07e26ep-73f, 0x1.4ea410p-74f, 0x1.761becp-75f, 0x1.8aed88p-76f, 0x1.d0f856p-77f,
     0x1.27e704p-77f},
    {-0x1.b02a4ep-68f, -0x1.15c8b6p-68f, -0x1.6e9192p-69f, -0x1.ef9efep-70f, -0x1.1f3884p-70f,
     -0x1.296094p-71f, -0x1.49b914p-72f, -0x1.8390aap-73f, -0x1.7e7440p-74f, -0x1.55b56ep-75f,
     -0x1.57fbcap-76f, -0x1.7b637cp-77f, -0x1.61763ep-78f, -0x1.304e0ep-79f, -0x1.2de2aap-80f,
     -0x1.4b90fcp-81f},
    {0x1.8b54fap-69f, 0x1.ddc9eap-70f, 0x1.289ba8p-70f, 0x1.79ad60p-71f, 0x1.9382c4p-72f,
     0x1.74f432p-73f, 0x1.731a40p-74f, 0x1.89cf2ep-75f, 0x1.5536e2p-76f, 0x1.00240ap-77f,
     0x1.ba33a8p-79f, 0x1.a9401ap-80f, 0x1.506034p-81f, 0x1.d7302cp-83f, 0x1.895cacp-84f,
     0x1.747408p-85f},
    {-0x1.476daep-70f, -0x1.76777ep-71f, -0x1.b83084p-72f, -0x1.0982bep-72f, -0x1.02f0b0p-73f,
     -0x1.b57714p-75f, -0x1.8a5d90p-76f, -0x1.786d90p-77f, -0x1.21e138p-78f, -0x1.72308ap-80f,
     -0x1.145da0p-81f, -0x1.cd2404p-83f, -0x1.37c478p-84f, -0x1.665482p-86f, -0x1.f40ff4p-88f,
     -0x1.9e605ap-89f},
}};

/// Of n·π/16: the sine, the cosine, and what these floats lack of them.
inline constexpr Parts<4> kPartsOfTurn = [] {
  constexpr double kSine = 0x1.8f8b83c69a60bp-3, kCosine = 0x1.f6297cff75cb0p-1;  // of π/16
  Parts<4> all{};
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
inline constexpr double kErfSlope = 1.12837916709551257390;                  // at 0: 2/√π
inline constexpr float kErfStep = 0x1.03ep-2f, kErfEnd = 15.49f * kErfStep;  // beyond, erf is 1
inline constexpr Parts<9> kPartsOfErf = [] {
  constexpr int kTerms = 30;
  constexpr double kHalf = kErfStep / 2;
  Parts<9> all{};
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
/// 2^(−n/16), of kSixteenths' power of n.
inline float root(int32_t n, float power) {
  return bit_cast<float>(bit_cast<uint32_t>(power) - (static_cast<uint32_t>(n) << 19));
}
inline constexpr float kSixteenth = 0x1.62e430p-5f, kSixteenthRest = -0x1.05c610p-33f;  // ln 2/16
/// e^−x = value + rest for −88 < x < 80, of n = sixteenths(x).
struct Falling {
  float value, rest;
  Falling(float x, int32_t whole, Sixteenth table) {
    using detail::fused;
    const float n = bit_cast<float>(whole) - detail::kWholeFloat;
    const float r = fused(n, -kSixteenth, x);  // exact
    const float bent = r * r * detail::horner<detail::kBent>(r), w = bent - r;
    const float low = fused(n, kSixteenthRest, table.rest) + (bent - (w + r));
    const float power = root(whole, table.power);
    value = fused(power, w, power);
    rest = fused(value, low, fused(power, w, power - value));
  }
};

/// The exponent of x, above bit 23, which part of kPartsOfLog its mantissa lies in, above bit 19.
inline int32_t log_place(float x) {
  return bit_cast<int32_t>(bit_cast<uint32_t>(x) - detail::kFirstMantissa);
}
/// Which part of kPartsOfTanh, kPartsOfMills a distance lies in: a quarter of an octave, counted
/// from before 0. In the lowest bits.
inline int32_t tanh_place(float distance) {
  return bit_cast<int32_t>(detail::fused(distance, 2, 1.25f)) >> 21;
}
inline int32_t mills_place(float distance) {
  return bit_cast<int32_t>(detail::fused(distance, 2, 2)) >> 21;
}

}  // namespace halftape::cpu::math
