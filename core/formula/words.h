// The words a formula may use, for scalars. The CPU's Chunk and, in derivatives, Tensor overload
// the same words. They must be declared before the formulas: argument-dependent lookup does not
// find them for float.
#pragma once
#include <cmath>
#include <limits>

#include "halftape/core/formula/ops.h"

namespace halftape {

#define HALFTAPE_WORD(word)                                \
  HALFTAPE_HD float word(float x) { return ::word##f(x); } \
  HALFTAPE_HD double word(double x) { return ::word(x); }
#define HALFTAPE_WORD2(word)                                           \
  HALFTAPE_HD float word(float x, float y) { return ::word##f(x, y); } \
  HALFTAPE_HD double word(double x, double y) { return ::word(x, y); }
HALFTAPE_WORD(exp)
HALFTAPE_WORD(exp2)
HALFTAPE_WORD(expm1)
HALFTAPE_WORD(log)
HALFTAPE_WORD(log1p)
HALFTAPE_WORD(log2)
HALFTAPE_WORD(log10)
HALFTAPE_WORD(sqrt)
HALFTAPE_WORD(sin)
HALFTAPE_WORD(cos)
HALFTAPE_WORD(tan)
HALFTAPE_WORD(asin)
HALFTAPE_WORD(acos)
HALFTAPE_WORD(atan)
HALFTAPE_WORD(sinh)
HALFTAPE_WORD(cosh)
HALFTAPE_WORD(tanh)
HALFTAPE_WORD(asinh)
HALFTAPE_WORD(acosh)
HALFTAPE_WORD(atanh)
HALFTAPE_WORD(erf)
HALFTAPE_WORD(erfc)
HALFTAPE_WORD(fabs)
HALFTAPE_WORD(floor)
HALFTAPE_WORD(ceil)
HALFTAPE_WORD(trunc)
HALFTAPE_WORD2(pow)
HALFTAPE_WORD2(atan2)
HALFTAPE_WORD2(fmod)
HALFTAPE_WORD2(hypot)
HALFTAPE_WORD2(copysign)
#undef HALFTAPE_WORD
#undef HALFTAPE_WORD2
// Half to even, in the rounding mode that everybody runs in.
HALFTAPE_HD float round(float x) { return ::rintf(x); }
HALFTAPE_HD double round(double x) { return ::rint(x); }

// sin(πx) and cos(πx), right for every x: whole turns are taken off first, which is exact, and the
// rest is brought to [−½, ½], so that whole numbers give exact zeros, of x's sign.
template <class S>
requires std::is_floating_point_v<S> HALFTAPE_HD S sinpi(S x) {
  const S r = x - S(2) * round(x / S(2));
  const S t = r > S(0.5) ? S(1) - r : r < S(-0.5) ? S(-1) - r : r;
  return t == S(0) ? copysign(S(0), x) : sin(S(3.14159265358979323846) * t);
}
template <class S>
requires std::is_floating_point_v<S> HALFTAPE_HD S cospi(S x) {
  const S r = x - S(2) * round(x / S(2));
  return sinpi(S(0.5) - (r < S(0) ? -r : r));
}

/// y with erf(y) = x: a start that is right to 0.2 % (near 0 the series, otherwise Winitzki 2008),
/// and three of Halley's steps, each of which triples the digits. Beyond 1/2 they go by erfc, for
/// which 1 − |x| is exact.
HALFTAPE_HD double erfinv(double x) {
  const double a = fabs(x), inside = a < 1 ? a : 0, z = 1 - inside, square = inside * inside;
  const double ln = log(z * (1 + inside)), b = 4.330746750799873 + ln / 2;  // 2/(0.147·π)
  double y = inside < 0.5 ? inside * (0.88622692545275801 +
                                      square * (0.23201366653465450 + square * 0.12755617530559796))
                          : sqrt(sqrt(b * b - ln / 0.147) - b);
  for (int step = 0; step < 3; ++step) {
    const double off = inside < 0.5 ? erf(y) - inside : z - erfc(y);
    const double newton = off * (0.88622692545275801 * exp(y * y));
    y -= newton / (1 + y * newton);
  }
  const double beyond = std::numeric_limits<double>::quiet_NaN(),
               end = std::numeric_limits<double>::infinity();
  return copysign(a < 1 ? y : a == 1 ? end : beyond, x);
}
HALFTAPE_HD float erfinv(float x) { return static_cast<float>(erfinv(static_cast<double>(x))); }

// Integers: whole already; arithmetic wraps around, as two's complement does.
HALFTAPE_HD int64_t floor(int64_t x) { return x; }
HALFTAPE_HD int64_t ceil(int64_t x) { return x; }
HALFTAPE_HD int64_t trunc(int64_t x) { return x; }
HALFTAPE_HD int64_t round(int64_t x) { return x; }
/// xᵖ modulo 2⁶⁴; for p < 0 the whole part of the fraction.
HALFTAPE_HD int64_t pow(int64_t x, int64_t p) {
  if (p < 0) return x == 1 ? 1 : x == -1 ? (p % 2 ? -1 : 1) : 0;
  uint64_t y = 1;
  for (auto power = static_cast<uint64_t>(x); p; p >>= 1, power *= power)
    if (p & 1) y *= power;
  return static_cast<int64_t>(y);
}
/// a/b towards zero and the rest that it leaves. A zero divisor, which a kernel that can throw
/// refuses, gives 0; a divisor of −1 never divides, because the lowest integer has no opposite.
HALFTAPE_HD int64_t quotient(int64_t a, int64_t b) {
  return b == 0 ? 0 : b == -1 ? static_cast<int64_t>(0 - static_cast<uint64_t>(a)) : a / b;
}
HALFTAPE_HD int64_t fmod(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }

template <class A, class B>
requires std::is_arithmetic_v<A> && std::is_arithmetic_v<B> HALFTAPE_HD std::common_type_t<A, B>
where(bool c, A a, B b) {
  return c ? a : b;
}
template <class S>
requires std::is_arithmetic_v<S> HALFTAPE_HD S abs(S x) {
  if constexpr (std::is_floating_point_v<S>)
    return fabs(x);
  else
    return x < 0 ? S(-x) : x;
}
/// −|x|. NaN keeps its sign: in a sum or product of two NaNs of different signs, the compiler would
/// choose which one the result has.
template <class T>
HALFTAPE_HD T minus_abs(const T& x) {
  return where(x > 0, -x, x);
}
/// Of g's shape and kind; Tensor has its own.
template <class T>
HALFTAPE_HD T zeros_like(const T&) {
  return T(0);
}
// 1 / (1 + e^-x) without overflow on either side: e^-|x| lies in (0, 1].
template <class S>
requires std::is_floating_point_v<S> HALFTAPE_HD S sigmoid(S x) {
  const S e = exp(minus_abs(x));
  return (x >= S(0) ? S(1) : e) / (S(1) + e);
}
/// The standard normal distribution at x: how much of it lies below, and its density.
template <class T>
struct Normal {
  T below, density;
};
// erfc keeps the digits of the left tail that 1 + erf would cancel.
template <class T>
HALFTAPE_HD Normal<T> normal(const T& x) {
  return {K<T>(0.5) * erfc(K<T>(-0.70710678118654752440) * x),
          K<T>(0.39894228040143267794) * exp(K<T>(-0.5) * (x * x))};
}

}  // namespace halftape
