// A register of floats, of the level of instructions that a file is compiled for
// (cmake/cpu_levels.cmake), where that has fused multiply-add. For loops that the compiler does not
// find by itself: those of products and of 16-bit conversions.
#pragma once
#include <cstring>

#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__) && defined(__F16C__))
#define HALFTAPE_SIMD 1
#include "halftape/cpu/vector/simd_avx.h"
#elif defined(__aarch64__) && defined(__ARM_NEON) && !defined(__AARCH64EB__)
#define HALFTAPE_SIMD 1
#include "halftape/cpu/vector/simd_neon.h"
#endif

#ifdef HALFTAPE_SIMD
namespace halftape::cpu::simd {

inline Vec zero() { return splat(0); }

#ifndef __AVX512F__
/// 2·kWidth neighbours, none of them NaN.
inline void store_numbers(BFloat16* p, Vec a, Vec b) {
  store(p, a);
  store(p + kWidth, b);
}
/// The first n ≤ kWidth of them; the other lanes are 0.
template <class T>
Vec load_first(const T* p, int n) {
  T lanes[kWidth] = {};
  std::memcpy(lanes, p, static_cast<size_t>(n) * sizeof(T));
  return load(lanes);
}
template <class T>
void store_first(T* p, Vec v, int n) {
  T lanes[kWidth];
  store(lanes, v);
  std::memcpy(p, lanes, static_cast<size_t>(n) * sizeof(T));
}
#endif

/// c + a·b: for P = 1 rounded once. For P = 2 the words hold two bfloat16 each, and both products
/// are added, after each of which the sum is rounded; subnormals count as 0.
template <int P>
Vec add_product(Vec a, Vec b, Vec c) {
#ifdef __AVX512BF16__
  if constexpr (P == 2)
    return _mm512_dpbf16_ps(c, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
#endif
  return fma(a, b, c);
}
/// 2·kWidth neighbours, or the first n of them, as words of two.
Vec load_pairs(const BFloat16* p);
Vec load_first_pairs(const BFloat16* p, int n);
/// Words of bfloat16 values that were loaded as floats.
Vec pair(Vec first, Vec second);
#ifdef __AVX512BF16__  // the three are not there otherwise
inline Vec load_pairs(const BFloat16* p) { return _mm512_loadu_ps(p); }
inline Vec load_first_pairs(const BFloat16* p, int n) {
  return _mm512_castsi512_ps(
      _mm512_maskz_loadu_epi16(static_cast<__mmask32>((uint64_t{1} << n) - 1), p));
}
inline Vec pair(Vec first, Vec second) {
  return _mm512_castsi512_ps(_mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(first), 16),
                                             _mm512_castps_si512(second)));
}
#endif

}  // namespace halftape::cpu::simd

#endif
