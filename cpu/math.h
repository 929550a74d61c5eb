// The words of formulas for one float, accurate to half an ulp by way of double.
#pragma once
#include <cmath>

#include "halftape/core/formula/words.h"

namespace halftape::cpu::math {

#define HALFTAPE_MATH_WORD(word, from)                   \
  inline double word(double x) { return from::word(x); } \
  inline float word(float x) { return static_cast<float>(from::word(static_cast<double>(x))); }
HALFTAPE_MATH_WORD(exp, std)
HALFTAPE_MATH_WORD(exp2, std)
HALFTAPE_MATH_WORD(expm1, std)
HALFTAPE_MATH_WORD(log, std)
HALFTAPE_MATH_WORD(log1p, std)
HALFTAPE_MATH_WORD(log2, std)
HALFTAPE_MATH_WORD(log10, std)
HALFTAPE_MATH_WORD(sin, std)
HALFTAPE_MATH_WORD(cos, std)
HALFTAPE_MATH_WORD(tan, std)
HALFTAPE_MATH_WORD(asin, std)
HALFTAPE_MATH_WORD(acos, std)
HALFTAPE_MATH_WORD(atan, std)
HALFTAPE_MATH_WORD(sinh, std)
HALFTAPE_MATH_WORD(cosh, std)
HALFTAPE_MATH_WORD(tanh, std)
HALFTAPE_MATH_WORD(asinh, std)
HALFTAPE_MATH_WORD(acosh, std)
HALFTAPE_MATH_WORD(atanh, std)
HALFTAPE_MATH_WORD(erf, std)
HALFTAPE_MATH_WORD(erfc, std)
HALFTAPE_MATH_WORD(sigmoid, halftape)
HALFTAPE_MATH_WORD(sinpi, halftape)
HALFTAPE_MATH_WORD(cospi, halftape)
#undef HALFTAPE_MATH_WORD

}  // namespace halftape::cpu::math
