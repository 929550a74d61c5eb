// The words a formula may use, for scalars. The CPU's Chunk and, in derivatives, Tensor overload
// the same words. They must be declared before the formulas: argument-dependent lookup does not
// find them for float.
#pragma once
#include <cmath>

#include "halftape/core/formula/ops.h"

namespace halftape {

HALFTAPE_HD float exp(float x) { return ::expf(x); }
HALFTAPE_HD double exp(double x) { return ::exp(x); }
HALFTAPE_HD float log(float x) { return ::logf(x); }
HALFTAPE_HD double log(double x) { return ::log(x); }
HALFTAPE_HD float log1p(float x) { return ::log1pf(x); }
HALFTAPE_HD double log1p(double x) { return ::log1p(x); }
HALFTAPE_HD float sqrt(float x) { return ::sqrtf(x); }
HALFTAPE_HD double sqrt(double x) { return ::sqrt(x); }
HALFTAPE_HD float tanh(float x) { return ::tanhf(x); }
HALFTAPE_HD double tanh(double x) { return ::tanh(x); }
HALFTAPE_HD float erf(float x) { return ::erff(x); }
HALFTAPE_HD double erf(double x) { return ::erf(x); }
HALFTAPE_HD float erfc(float x) { return ::erfcf(x); }
HALFTAPE_HD double erfc(double x) { return ::erfc(x); }
HALFTAPE_HD float pow(float x, float p) { return ::powf(x, p); }
HALFTAPE_HD double pow(double x, double p) { return ::pow(x, p); }

template <class A, class B>
requires std::is_arithmetic_v<A> && std::is_arithmetic_v<B> HALFTAPE_HD std::common_type_t<A, B>
where(bool c, A a, B b) {
  return c ? a : b;
}
template <class S>
requires std::is_arithmetic_v<S> HALFTAPE_HD S abs(S x) {
  return x < S(0) ? S(-x) : x == S(0) ? S(0) : x;  // abs(-0) is +0
}
// 1 / (1 + e^-x) without overflow on either side: e^-|x| lies in (0, 1].
template <class S>
requires std::is_floating_point_v<S> HALFTAPE_HD S sigmoid(S x) {
  const S e = exp(-abs(x));
  return (x >= S(0) ? S(1) : e) / (S(1) + e);
}

}  // namespace halftape
