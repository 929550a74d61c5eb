// Conversion of neighbours from one element type to another.
#pragma once
#include "halftape/core/dtype.h"

#ifdef __F16C__
#include <immintrin.h>
#endif

namespace halftape::cpu {

template <class To, class From>
void convert_all(const From* x, int64_t n, To* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = convert<To>(x[i]);
}

#ifdef __F16C__
// The processor's own conversions round as core/half.h does; only NaNs, which are rare, differ in
// the bits that they keep: numbers with one among them take that way.
inline void convert_all(const Half* x, int64_t n, float* y) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 wide = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i)));
    _mm256_storeu_ps(y + i, wide);
    if (_mm256_movemask_ps(_mm256_cmp_ps(wide, wide, _CMP_UNORD_Q)))
      convert_all<float, Half>(x + i, 8, y + i);
  }
  convert_all<float, Half>(x + i, n - i, y + i);
}
inline void convert_all(const float* x, int64_t n, Half* y) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    int nan = 0;
    for (int k = 0; k < 32; ++k) nan |= x[i + k] != x[i + k] ? 1 : 0;
    if (nan)
      convert_all<Half, float>(x + i, 32, y + i);
    else
      for (int k = 0; k < 32; k += 8)
        _mm_storeu_si128(reinterpret_cast<__m128i*>(y + i + k),
                         _mm256_cvtps_ph(_mm256_loadu_ps(x + i + k), kNearest));
  }
  convert_all<Half, float>(x + i, n - i, y + i);
}
#endif

}  // namespace halftape::cpu
