// Numbers of 96 bits (MPFR): the references of the exhaustive 16-bit tests.
#pragma once
#include <mpfr.h>

#include <cmath>
#include <cstdint>

#include "halftape/core/bit_cast.h"

namespace halftape::testing {

/// A 96-bit number: more than enough to round to 11 bits correctly.
class Real {
 public:
  Real() { mpfr_init2(value_, 96); }
  Real(double v) : Real() { mpfr_set_d(value_, v, MPFR_RNDN); }  // NOLINT: numbers mix with doubles
  Real(const Real& o) : Real() { mpfr_set(value_, o.value_, MPFR_RNDN); }
  Real& operator=(const Real& o) { return mpfr_set(value_, o.value_, MPFR_RNDN), *this; }
  ~Real() { mpfr_clear(value_); }

  template <class F>
  static Real of(F f, const Real& x) {
    Real y;
    f(y.value_, x.value_, MPFR_RNDN);
    return y;
  }
  template <class F>
  static Real of(F f, const Real& a, const Real& b) {
    Real y;
    f(y.value_, a.value_, b.value_, MPFR_RNDN);
    return y;
  }
  friend Real operator+(const Real& a, const Real& b) { return of(mpfr_add, a, b); }
  friend Real operator-(const Real& a) { return of(mpfr_neg, a); }
  friend Real operator-(const Real& a, const Real& b) { return of(mpfr_sub, a, b); }
  friend Real operator*(const Real& a, const Real& b) { return of(mpfr_mul, a, b); }
  friend Real operator/(const Real& a, const Real& b) { return of(mpfr_div, a, b); }
  friend bool operator<(const Real& a, const Real& b) { return mpfr_less_p(a.value_, b.value_); }
  friend bool operator>(const Real& a, const Real& b) { return b < a; }
  friend bool operator==(const Real& a, const Real& b) { return mpfr_equal_p(a.value_, b.value_); }

  /// Rounded to odd: a later rounding to fewer bits is then as if from the exact value.
  double rounded_to_odd() const {
    if (mpfr_nan_p(value_)) return std::nan("");
    const double d = mpfr_get_d(value_, MPFR_RNDZ);
    const bool exact = mpfr_cmp_d(value_, d) == 0;
    return exact ? d : bit_cast<double>(bit_cast<uint64_t>(d) | 1);
  }

 private:
  mpfr_t value_;
};

#define HALFTAPE_REAL(word) \
  inline Real word(const Real& x) { return Real::of(mpfr_##word, x); }
HALFTAPE_REAL(abs)
HALFTAPE_REAL(exp)
HALFTAPE_REAL(exp2)
HALFTAPE_REAL(expm1)
HALFTAPE_REAL(log)
HALFTAPE_REAL(log1p)
HALFTAPE_REAL(log2)
HALFTAPE_REAL(log10)
HALFTAPE_REAL(sqrt)
HALFTAPE_REAL(sin)
HALFTAPE_REAL(cos)
HALFTAPE_REAL(tan)
HALFTAPE_REAL(asin)
HALFTAPE_REAL(acos)
HALFTAPE_REAL(atan)
HALFTAPE_REAL(sinh)
HALFTAPE_REAL(cosh)
HALFTAPE_REAL(tanh)
HALFTAPE_REAL(asinh)
HALFTAPE_REAL(acosh)
HALFTAPE_REAL(atanh)
HALFTAPE_REAL(erf)
HALFTAPE_REAL(erfc)
#undef HALFTAPE_REAL
inline Real power(const Real& x, const Real& p) { return Real::of(mpfr_pow, x, p); }
/// Newton's steps from below, which never go beyond the root.
inline Real erfinv(const Real& x) {
  const Real a = abs(x), z = 1.0 - a;
  if (!(a < 1.0)) return a == 1.0 ? x / Real(0.0) : log(Real(-1.0));
  const Real root = Real::of(mpfr_gamma, 0.5) / 2.0;
  Real y = 0.0, step = 1.0;
  for (int i = 0; i < 100 && abs(step) > 1e-26 * y; ++i) {
    step = (a < 0.5 ? a - erf(y) : erfc(y) - z) * root * exp(y * y);
    y = y + step;
  }
  return x == 0.0 ? x : x < 0.0 ? -y : y;
}
/// x − tanh(x) without cancelling, near 0 by its series.
inline Real tanhshrink(const Real& x) {
  const Real t = x * x;
  return abs(x) < 1e-4 ? x * t / 3.0 * (1.0 - t * 0.4) : x - tanh(x);
}
inline Real pi() { return Real::of(mpfr_acos, -1.0); }
inline Real whole(int (*f)(mpfr_ptr, mpfr_srcptr), const Real& x) {
  return Real::of([f](mpfr_ptr y, mpfr_srcptr v, mpfr_rnd_t) { return f(y, v); }, x);
}
inline Real floor(const Real& x) { return whole(mpfr_floor, x); }
inline Real ceil(const Real& x) { return whole(mpfr_ceil, x); }
inline Real trunc(const Real& x) { return whole(mpfr_trunc, x); }
inline Real half_to_even(const Real& x) {
  return Real::of([](mpfr_ptr y, mpfr_srcptr v, mpfr_rnd_t) { return mpfr_roundeven(y, v); }, x);
}
// x modulo 2, exactly: a half has few bits.
inline Real turns(const Real& x) { return Real::of(mpfr_fmod, x, 2.0); }
inline Real sinpi(const Real& x) {
  const Real t = turns(x);
  return abs(t) == 1.0 ? Real(0) * t : sin(pi() * t);
}
inline Real cospi(const Real& x) {
  const Real t = abs(turns(x));
  return t == 0.5 || t == 1.5 ? Real(0) : cos(pi() * t);
}

/// Neighbours are one apart, −0 and 0 the same.
inline int ordered(uint16_t bits) { return bits & 0x8000 ? -(bits & 0x7fff) : bits; }

}  // namespace halftape::testing
