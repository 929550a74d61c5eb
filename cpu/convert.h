// Conversion of neighbours from one element type to another.
#pragma once
#include "halftape/core/dtype.h"
#include "halftape/cpu/simd.h"

namespace halftape::cpu {

template <class To, class From>
void convert_all(const From* x, int64_t n, To* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = convert<To>(x[i]);
}
/// As bytes, of whose conversion g++ makes vectors.
template <class To>
void convert_all(const bool* x, int64_t n, To* y) {
  convert_all(reinterpret_cast<const uint8_t*>(x), n, y);
}

#ifdef HALFTAPE_SIMD
/// The processor makes NaNs quiet, which core/half.h does not: those, which are rare, go its way.
inline void convert_all(const Half* x, int64_t n, float* y) {
  int64_t i = 0;
  for (; i + simd::kWidth <= n; i += simd::kWidth) {
    const simd::Vec wide = simd::load(x + i);
    simd::store(y + i, wide);
    if (simd::any_nan(wide)) convert_all<float, Half>(x + i, simd::kWidth, y + i);
  }
  convert_all<float, Half>(x + i, n - i, y + i);
}
inline void convert_all(const float* x, int64_t n, Half* y) {
  int64_t i = 0;
  for (; i + simd::kWidth <= n; i += simd::kWidth) simd::store(y + i, simd::load(x + i));
  convert_all<Half, float>(x + i, n - i, y + i);
}
#endif

}  // namespace halftape::cpu
