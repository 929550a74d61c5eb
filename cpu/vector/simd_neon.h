// Two registers of NEON, which every 64-bit Arm processor has, as one of eight lanes; see simd.h.
#pragma once
#include <arm_neon.h>

#include "halftape/core/half.h"

namespace halftape::cpu::simd {

struct Vec {
  float32x4_t low, high;
};
inline constexpr int kWidth = 8;

inline Vec operator+(Vec a, Vec b) { return {vaddq_f32(a.low, b.low), vaddq_f32(a.high, b.high)}; }
inline Vec operator*(Vec a, Vec b) { return {vmulq_f32(a.low, b.low), vmulq_f32(a.high, b.high)}; }
/// All bits of the lanes that are NaN.
inline uint32x4_t is_nan(float32x4_t v) { return vmvnq_u32(vceqq_f32(v, v)); }

inline Vec splat(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }
inline Vec load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
inline Vec load(const Half* p) {
  const float16x8_t halves = vreinterpretq_f16_u16(vld1q_u16(reinterpret_cast<const uint16_t*>(p)));
  return {vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)};
}
inline Vec load(const BFloat16* p) {
  const uint16x8_t bits = vld1q_u16(reinterpret_cast<const uint16_t*>(p));
  return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(bits), 16)),
          vreinterpretq_f32_u32(vshll_high_n_u16(bits, 16))};
}
inline void store(float* p, Vec v) {
  vst1q_f32(p, v.low);
  vst1q_f32(p + 4, v.high);
}
inline void store(Half* p, Vec v) {
  const uint16x8_t bits = vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(v.low), v.high));
  const uint16x8_t nan = vmovn_high_u32(vmovn_u32(is_nan(v.low)), is_nan(v.high));
  // Of a NaN's payload, which the instruction keeps in part, only the first bit.
  vst1q_u16(reinterpret_cast<uint16_t*>(p), vbicq_u16(bits, vandq_u16(nan, vdupq_n_u16(0x1ff))));
}
/// In the upper half of each word.
inline uint32x4_t bfloat16_bits(float32x4_t v) {
  const uint32x4_t word = vreinterpretq_u32_f32(v);
  const uint32x4_t last = vandq_u32(vshrq_n_u32(word, 16), vdupq_n_u32(1));
  const uint32x4_t up = vaddq_u32(word, vaddq_u32(last, vdupq_n_u32(0x7fff)));
  const uint32x4_t nan =
      vorrq_u32(vandq_u32(word, vdupq_n_u32(0x80000000u)), vdupq_n_u32(0x7fc00000u));
  return vbslq_u32(is_nan(v), nan, up);
}
inline void store(BFloat16* p, Vec v) {
  vst1q_u16(reinterpret_cast<uint16_t*>(p),
            vshrn_high_n_u32(vshrn_n_u32(bfloat16_bits(v.low), 16), bfloat16_bits(v.high), 16));
}

/// a·b + c, rounded once.
inline Vec fma(Vec a, Vec b, Vec c) {
  return {vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)};
}
/// Whether one of 32 words is not 0.
inline bool any(const int32_t (&words)[32]) {
  int32x4_t all = vld1q_s32(words);
  for (int i = 4; i < 32; i += 4) all = vorrq_s32(all, vld1q_s32(words + i));
  return vmaxvq_u32(vreinterpretq_u32_s32(all)) != 0;
}
inline bool any_nan(Vec a, Vec b) {
  return vmaxvq_u32(vorrq_u32(vorrq_u32(is_nan(a.low), is_nan(a.high)),
                              vorrq_u32(is_nan(b.low), is_nan(b.high)))) != 0;
}

/// Every second element of both, the first included.
inline Vec even(Vec a, Vec b) { return {vuzp1q_f32(a.low, a.high), vuzp1q_f32(b.low, b.high)}; }

/// One bit for each lane.
using Bits = uint8_t;
/// The bit of each lane.
inline uint16x8_t lane_bits() {
  constexpr uint16_t bits[] = {1, 2, 4, 8, 16, 32, 64, 128};
  return vld1q_u16(bits);
}
inline Bits not_below_or_zero(Vec v) {
  const uint16x8_t below_or_zero = vmovn_high_u32(vmovn_u32(vclezq_f32(v.low)), vclezq_f32(v.high));
  return static_cast<Bits>(vaddvq_u16(vbicq_u16(lane_bits(), below_or_zero)));
}
/// 0 in lanes that have no bit.
inline Vec keep(Bits bits, Vec v) {
  const int16x8_t has = vreinterpretq_s16_u16(vtstq_u16(vdupq_n_u16(bits), lane_bits()));
  const auto kept = [](int32x4_t all, float32x4_t x) {
    return vreinterpretq_f32_s32(vandq_s32(all, vreinterpretq_s32_f32(x)));
  };
  return {kept(vmovl_s16(vget_low_s16(has)), v.low), kept(vmovl_high_s16(has), v.high)};
}

/// table[i mod 16] of kWidth indices i, byte by byte.
inline Vec look_up(const float (&table)[16], const int32_t* i) {
  const uint8x16x4_t bytes = vld1q_u8_x4(reinterpret_cast<const uint8_t*>(table));
  const auto four = [&](const int32_t* p) {
    const uint32x4_t index = vandq_u32(vreinterpretq_u32_s32(vld1q_s32(p)), vdupq_n_u32(15));
    const uint32x4_t at = vmlaq_n_u32(vdupq_n_u32(0x03020100), index, 0x04040404);
    return vreinterpretq_f32_u8(vqtbl4q_u8(bytes, vreinterpretq_u8_u32(at)));
  };
  return {four(i), four(i + 4)};
}

/// r[i][j] ↔ r[j][i], for four rows of four.
inline void transpose(float32x4_t& r0, float32x4_t& r1, float32x4_t& r2, float32x4_t& r3) {
  const auto wide = [](float32x4_t x) { return vreinterpretq_f64_f32(x); };
  const auto narrow = [](float64x2_t x) { return vreinterpretq_f32_f64(x); };
  const float64x2_t a = wide(vtrn1q_f32(r0, r1)), b = wide(vtrn2q_f32(r0, r1)),
                    c = wide(vtrn1q_f32(r2, r3)), d = wide(vtrn2q_f32(r2, r3));
  r0 = narrow(vtrn1q_f64(a, c));
  r1 = narrow(vtrn1q_f64(b, d));
  r2 = narrow(vtrn2q_f64(a, c));
  r3 = narrow(vtrn2q_f64(b, d));
}
/// r[i][j] ↔ r[j][i].
inline void transpose(Vec r[kWidth]) {
  transpose(r[0].low, r[1].low, r[2].low, r[3].low);
  transpose(r[0].high, r[1].high, r[2].high, r[3].high);
  transpose(r[4].low, r[5].low, r[6].low, r[7].low);
  transpose(r[4].high, r[5].high, r[6].high, r[7].high);
  for (int i = 0; i < 4; ++i) {
    const float32x4_t right = r[i].high;
    r[i].high = r[i + 4].low;
    r[i + 4].low = right;
  }
}

}  // namespace halftape::cpu::simd
