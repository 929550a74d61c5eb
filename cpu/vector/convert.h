// Conversion of neighbours from one element type to another.
#pragma once
#include <algorithm>

#include "halftape/core/dtype.h"
#include "halftape/cpu/vector/simd.h"

namespace halftape::cpu {

template <class To, class From>
void convert_all(const From* x, int64_t n, To* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = convert<To>(x[i]);
}
/// As bytes, whose conversion g++ vectorises.
template <class To>
void convert_all(const bool* x, int64_t n, To* y) {
  convert_all(reinterpret_cast<const uint8_t*>(x), n, y);
}

#ifdef HALFTAPE_SIMD
/// The processor makes NaNs quiet, which core/half.h does not: those, which are rare, go its way.
inline void convert_all(const Half* x, int64_t n, float* y) {
  constexpr int64_t kTwo = 2 * simd::kWidth;
  int64_t i = 0;
  for (; i + kTwo <= n; i += kTwo) {
    const simd::Vec a = simd::load(x + i), b = simd::load(x + i + simd::kWidth);
    simd::store(y + i, a);
    simd::store(y + i + simd::kWidth, b);
    if (simd::any_nan(a, b)) convert_all<float, Half>(x + i, kTwo, y + i);
  }
  while (i < n) {
    const int count = static_cast<int>(std::min<int64_t>(simd::kWidth, n - i));
    const simd::Vec wide = simd::load_first(x + i, count);
    simd::store_first(y + i, wide, count);
    if (simd::any_nan(wide, wide)) convert_all<float, Half>(x + i, count, y + i);
    i += count;
  }
}
inline void convert_all(const float* x, int64_t n, Half* y) {
  int64_t i = 0;
  for (; i + simd::kWidth <= n; i += simd::kWidth) simd::store(y + i, simd::load(x + i));
  if (i == n) return;
  const int rest = static_cast<int>(n - i);
  simd::store_first(y + i, simd::load_first(x + i, rest), rest);
}
inline void convert_all(const float* x, int64_t n, BFloat16* y) {
  constexpr int64_t kTwo = 2 * simd::kWidth;
  int64_t i = 0;
  for (; i + kTwo <= n; i += kTwo) {
    const simd::Vec a = simd::load(x + i), b = simd::load(x + i + simd::kWidth);
    if (simd::any_nan(a, b)) [[unlikely]]
      convert_all<BFloat16, float>(x + i, kTwo, y + i);
    else
      simd::store_numbers(y + i, a, b);
  }
  convert_all<BFloat16, float>(x + i, n - i, y + i);
}
#endif

}  // namespace halftape::cpu
