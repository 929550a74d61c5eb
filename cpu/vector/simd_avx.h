// Registers of AVX-512 or AVX2; see simd.h.
#pragma once
#include <immintrin.h>

#include <utility>

#include "halftape/core/half.h"

namespace halftape::cpu::simd {

#if defined(__AVX512F__)

using Vec = __m512;
inline constexpr int kWidth = 16;

inline Vec splat(float x) { return _mm512_set1_ps(x); }
inline Vec load(const float* p) { return _mm512_loadu_ps(p); }
inline Vec load(const Half* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Vec load(const BFloat16* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
inline void store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
inline __m256i half_bits(Vec v) {
  const __m256i bits = _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
  const __m256i nan = _mm256_or_si256(_mm256_and_si256(bits, _mm256_set1_epi16(-0x8000)),
                                      _mm256_set1_epi16(0x7e00));
  return _mm256_mask_mov_epi16(bits, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), nan);
}
inline __m256i bfloat16_bits(Vec v) {
  const __m512i word = _mm512_castps_si512(v);
  const __m512i last = _mm512_and_si512(_mm512_srli_epi32(word, 16), _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(word, _mm512_add_epi32(last, _mm512_set1_epi32(0x7fff)));
  const __m512i nan = _mm512_or_si512(_mm512_and_si512(word, _mm512_set1_epi32(INT32_MIN)),
                                      _mm512_set1_epi32(0x7fc00000));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_mov_epi32(up, is_nan, nan), 16));
}
inline void store(Half* p, Vec v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), half_bits(v));
}
inline void store(BFloat16* p, Vec v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), bfloat16_bits(v));
}
/// 2·kWidth neighbours, none of them NaN. To even: half a unit less one is added to an even number.
inline void store_numbers(BFloat16* p, Vec a, Vec b) {
  const auto rounded = [](Vec v) {
    const __m512i word = _mm512_castps_si512(v), most = _mm512_set1_epi32(0x7fff);
    const __mmask16 odd = _mm512_test_epi32_mask(word, _mm512_set1_epi32(0x10000));
    return _mm512_add_epi32(word, _mm512_mask_mov_epi32(most, odd, _mm512_set1_epi32(0x8000)));
  };
  alignas(64) static constexpr uint16_t kUpper[] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                                    23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                                    45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  _mm512_storeu_si512(p,
                      _mm512_permutex2var_epi16(rounded(a), _mm512_load_si512(kUpper), rounded(b)));
}

/// The first n ≤ kWidth of them; the other lanes are 0.
inline __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1); }
inline Vec load_first(const float* p, int n) { return _mm512_maskz_loadu_ps(first(n), p); }
inline Vec load_first(const Half* p, int n) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(n), p));
}
inline Vec load_first(const BFloat16* p, int n) {
  const __m256i bits = _mm256_maskz_loadu_epi16(first(n), p);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
inline void store_first(float* p, Vec v, int n) { _mm512_mask_storeu_ps(p, first(n), v); }
inline void store_first(Half* p, Vec v, int n) {
  _mm256_mask_storeu_epi16(p, first(n), half_bits(v));
}
inline void store_first(BFloat16* p, Vec v, int n) {
  _mm256_mask_storeu_epi16(p, first(n), bfloat16_bits(v));
}

/// a·b + c, rounded once.
inline Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
/// Whether one of 32 words is not 0.
inline bool any(const int32_t (&words)[32]) {
  const __m512i both = _mm512_or_si512(_mm512_loadu_si512(words), _mm512_loadu_si512(words + 16));
  return _mm512_test_epi32_mask(both, both) != 0;
}
inline bool any_nan(Vec a, Vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q) != 0; }

/// One bit for each lane.
using Bits = uint16_t;
inline Bits not_below_or_zero(Vec v) { return _mm512_cmp_ps_mask(v, splat(0), _CMP_NLE_UQ); }
/// 0 in lanes that have no bit.
inline Vec keep(Bits bits, Vec v) { return _mm512_maskz_mov_ps(bits, v); }

/// table[i mod 16] of kWidth indices i.
inline Vec look_up(const float (&table)[16], const int32_t* i) {
  return _mm512_permutexvar_ps(_mm512_loadu_si512(i), load(table));
}

/// r[i][j] ↔ r[j][i].
inline void transpose(Vec r[kWidth]) {
  Vec t[kWidth];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    auto low = [&](int a, int b) {
      return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(t[a]), _mm512_castps_pd(t[b])));
    };
    auto high = [&](int a, int b) {
      return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(t[a]), _mm512_castps_pd(t[b])));
    };
    r[i] = low(i, i + 2);
    r[i + 1] = high(i, i + 2);
    r[i + 2] = low(i + 1, i + 3);
    r[i + 3] = high(i + 1, i + 3);
  }
  for (int half = 0; half < 16; half += 8) {
    for (int i = half; i < half + 4; ++i) {
      t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
      t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
    }
  }
  for (int i = 0; i < 8; ++i) {
    r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
  }
}

#else

using Vec = __m256;
inline constexpr int kWidth = 8;

inline Vec splat(float x) { return _mm256_set1_ps(x); }
inline Vec load(const float* p) { return _mm256_loadu_ps(p); }
inline Vec load(const Half* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline Vec load(const BFloat16* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline void store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
inline void store(Half* p, Vec v) {
  const __m128i bits = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
  const __m128i nan =
      _mm_or_si128(_mm_and_si128(bits, _mm_set1_epi16(-0x8000)), _mm_set1_epi16(0x7e00));
  const __m256i wide = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  const __m128i is_nan =
      _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_blendv_epi8(bits, nan, is_nan));
}
inline void store(BFloat16* p, Vec v) {
  const __m256i word = _mm256_castps_si256(v);
  const __m256i last = _mm256_and_si256(_mm256_srli_epi32(word, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(word, _mm256_add_epi32(last, _mm256_set1_epi32(0x7fff)));
  const __m256i nan = _mm256_or_si256(_mm256_and_si256(word, _mm256_set1_epi32(INT32_MIN)),
                                      _mm256_set1_epi32(0x7fc00000));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  const __m256i rounded = _mm256_srli_epi32(_mm256_blendv_epi8(up, nan, is_nan), 16);
  const __m128i bits =
      _mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bits);
}
inline __m256i first(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline Vec load_first(const float* p, int n) { return _mm256_maskload_ps(p, first(n)); }
inline void store_first(float* p, Vec v, int n) { _mm256_maskstore_ps(p, first(n), v); }

/// a·b + c, rounded once.
inline Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
/// Whether one of 32 words is not 0.
inline bool any(const int32_t (&words)[32]) {
  const auto at = [&](int i) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words + i));
  };
  const __m256i all =
      _mm256_or_si256(_mm256_or_si256(at(0), at(8)), _mm256_or_si256(at(16), at(24)));
  return _mm256_testz_si256(all, all) == 0;
}
inline bool any_nan(Vec a, Vec b) {
  return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_UNORD_Q)) != 0;
}

/// One bit for each lane.
using Bits = uint8_t;
inline Bits not_below_or_zero(Vec v) {
  return static_cast<Bits>(_mm256_movemask_ps(_mm256_cmp_ps(v, splat(0), _CMP_NLE_UQ)));
}
/// 0 in lanes that have no bit.
inline Vec keep(Bits bits, Vec v) {
  const __m256i own = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i has = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(bits), own), own);
  return _mm256_and_ps(_mm256_castsi256_ps(has), v);
}

/// table[i mod 16] of kWidth indices i.
inline Vec look_up(const float (&table)[16], const int32_t* i) {
  const __m256i index = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(i));
  const Vec low = _mm256_permutevar8x32_ps(load(table), index),
            high = _mm256_permutevar8x32_ps(load(table + 8), index);
  return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
}

/// r[i][j] ↔ r[j][i].
inline void transpose(Vec r[kWidth]) {
  Vec t[kWidth];
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
    t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
  }
  for (int i = 0; i < 8; ++i) r[i] = t[i];
}

#endif

/// Every second element of both, the first included.
inline Vec even(Vec a, Vec b) {
  return [&]<int... I>(std::integer_sequence<int, I...>) {
    return __builtin_shufflevector(a, b, (2 * I)...);
  }
  (std::make_integer_sequence<int, kWidth>());
}

}  // namespace halftape::cpu::simd
