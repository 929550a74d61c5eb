// a·b + c, rounded once, where the C library does not do that.
#pragma once
#include <cmath>
#include <cstdint>

namespace halftape {

/// A sum and what its rounding lost: x + y = high + low. Knuth, TAOCP 2, section 4.2.2.
struct TwoDoubles {
  double high, low;
};
constexpr TwoDoubles two_sum(double x, double y) {
  const double s = x + y, t = s - x;
  return {s, (x - (s - t)) + (y - t)};
}
/// x·y = high + low. Dekker 1971, doi:10.1007/BF01397083.
constexpr TwoDoubles two_product(double x, double y) {
  constexpr double kSplit = 0x1p27 + 1;
  const double p = x * y, xs = kSplit * x, ys = kSplit * y, xh = xs - (xs - x), yh = ys - (ys - y),
               xl = x - xh, yl = y - yh;
  return {p, ((xh * yh - p) + xh * yl + xl * yh) + xl * yl};
}
/// x + y, where a result that is not exact gets an odd last bit: a second rounding, to fewer
/// digits, is then right. Boldo and Melquiond 2008, doi:10.1109/TC.2007.70819.
constexpr double sum_rounded_to_odd(double x, double y) {
  const TwoDoubles s = two_sum(x, y);
  if (!(s.low < 0 || s.low > 0)) return s.high;            // NaN, too
  const auto bits = __builtin_bit_cast(uint64_t, s.high);  // libc++ 13 lacks std::bit_cast
  if (bits & 1) return s.high;
  return __builtin_bit_cast(double, (s.low > 0) == (s.high > 0) ? bits + 1 : bits - 1);
}

/// For finite results far from the ends of the exponents.
constexpr float fma_in_steps(float a, float b, float c) {
  return static_cast<float>(sum_rounded_to_odd(double{a} * b, c));  // the product is exact
}
constexpr double fma_in_steps(double a, double b, double c) {
  const TwoDoubles u = two_product(a, b), t = two_sum(c, u.low), v = two_sum(u.high, t.high);
  return v.high + sum_rounded_to_odd(t.low, v.low);
}

/// MinGW's fma() rounds twice.
template <class T>
T fma(T a, T b, T c) {
#if defined(__MINGW32__)
  return fma_in_steps(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

}  // namespace halftape
