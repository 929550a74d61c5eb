// The two 16-bit storage formats and their exact conversions. No arithmetic: half is loaded,
// computed in float and rounded once.
#pragma once
#include <cstdint>
#include <type_traits>

#include "halftape/core/bit_cast.h"

#if defined(__aarch64__) && defined(__ARM_FP16_FORMAT_IEEE) && !defined(__CUDACC__)
#define HALFTAPE_HALF_INSTRUCTIONS 1
#endif

namespace halftape {

namespace detail {

/// Rounds a double to a binary format with `mantissa` explicit bits and exponents up to
/// 2^max_exponent, ties to even, in one step (through float would round twice). Gives the bits
/// without the sign; NaN becomes quiet.
constexpr uint16_t round_to_16(double value, int mantissa, int max_exponent) {
  const auto bits = bit_cast<uint64_t>(value) & ~(uint64_t{1} << 63);
  const int bias = max_exponent;  // IEEE: bias == largest exponent
  const auto infinity = static_cast<uint16_t>(((1u << (15 - mantissa)) - 1u) << mantissa);
  if (bits > (uint64_t{0x7ff} << 52))
    return static_cast<uint16_t>(infinity | (1u << (mantissa - 1)));
  const int exponent = static_cast<int>(bits >> 52) - 1023;
  if (exponent > max_exponent) return infinity;
  if (exponent < 1 - bias - mantissa - 1) return 0;  // below half the smallest subnormal
  const uint64_t significand = (bits & ((uint64_t{1} << 52) - 1)) | (uint64_t{1} << 52);
  const bool normal = exponent >= 1 - bias;
  const int shift = normal ? 52 - mantissa : 52 - mantissa + (1 - bias - exponent);
  if (shift > 63) return 0;
  const uint64_t kept = significand >> shift;
  const uint64_t rest = significand & ((uint64_t{1} << shift) - 1);
  const uint64_t half = uint64_t{1} << (shift - 1);
  const uint64_t up = rest > half || (rest == half && (kept & 1)) ? 1 : 0;
  // A carry out of the significand runs into the exponent field, which is exactly what rounding up
  // means.
  const uint64_t base = normal ? static_cast<uint64_t>(exponent + bias - 1) << mantissa : 0;
  return static_cast<uint16_t>(base + kept + up);
}

constexpr uint16_t sign16(double value) {
  return static_cast<uint16_t>((bit_cast<uint64_t>(value) >> 63) << 15);
}

/// float -> IEEE half, ties to even, without branches on the value so that loops vectorise.
/// After F. Giesen's public-domain note on fast half conversion (2012).
constexpr uint16_t float_to_half_bits(float value) {
  const uint32_t word = bit_cast<uint32_t>(value);
  const uint32_t sign = (word >> 16) & 0x8000u;
  const uint32_t magnitude = word & 0x7fffffffu;
  // Subnormal result: adding 0.5 aligns the half's last bit with the float's last bit; the FPU
  // rounds.
  const float aligned = bit_cast<float>(magnitude < 0x38800000u ? magnitude : 0u) + 0.5f;
  const uint32_t subnormal = bit_cast<uint32_t>(aligned) - 0x3f000000u;
  const uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  const uint32_t finite = magnitude < 0x38800000u ? subnormal : normal;
  return static_cast<uint16_t>(sign | (magnitude >= 0x47800000u ? special : finite));
}

constexpr float half_bits_to_float(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16;
  const uint32_t magnitude = bits & 0x7fffu;
  // Subnormals: place the bits as the fraction of 0.5 and subtract 0.5, exactly.
  const float subnormal = bit_cast<float>(0x3f000000u + magnitude) - 0.5f;
  const uint32_t normal = (magnitude << 13) + 0x38000000u;
  const uint32_t special = (magnitude << 13) + 0x70000000u;  // inf and NaN keep their payload
  const uint32_t chosen = magnitude < 0x400u    ? bit_cast<uint32_t>(subnormal)
                          : magnitude < 0x7c00u ? normal
                                                : special;
  return bit_cast<float>(sign | chosen);
}

/// The same bits, by the instructions of a machine that has them. Those keep more of a NaN's
/// payload.
constexpr uint16_t to_half_bits(float value) {
#ifdef HALFTAPE_HALF_INSTRUCTIONS
  if (!std::is_constant_evaluated()) {
    const uint32_t bits = bit_cast<uint16_t>(static_cast<__fp16>(value));
    return static_cast<uint16_t>(value == value ? bits : bits & 0xfe00u);
  }
#endif
  return float_to_half_bits(value);
}
/// The same bits. The instructions make a signalling NaN quiet.
constexpr float from_half_bits(uint16_t bits) {
#ifdef HALFTAPE_HALF_INSTRUCTIONS
  if (!std::is_constant_evaluated()) {
    const float value = static_cast<float>(bit_cast<__fp16>(bits));
    return (bits & 0x7fffu) > 0x7c00u ? half_bits_to_float(bits) : value;
  }
#endif
  return half_bits_to_float(bits);
}

constexpr uint16_t float_to_bfloat16_bits(float value) {
  const uint32_t word = bit_cast<uint32_t>(value);
  const uint32_t rounded = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
  const uint32_t nan = ((word >> 16) & 0x8000u) | 0x7fc0u;
  return static_cast<uint16_t>((word & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

}  // namespace detail

/// IEEE 754 binary16: 1 sign, 5 exponent, 10 fraction bits; largest 65504, smallest normal 2^-14,
/// smallest 2^-24.
struct Half {
  uint16_t bits = 0;
  constexpr Half() = default;
  constexpr explicit Half(float value) : bits(detail::to_half_bits(value)) {}
  constexpr explicit Half(double value)
      : bits(static_cast<uint16_t>(detail::round_to_16(value, 10, 15) | detail::sign16(value))) {}
  constexpr explicit operator float() const { return detail::from_half_bits(bits); }
  constexpr explicit operator double() const { return static_cast<float>(*this); }
  /// The number with these bits.
  static constexpr Half from_bits(uint16_t bits) {
    Half h;
    h.bits = bits;
    return h;
  }
  friend constexpr bool operator==(Half a, Half b) {
    return static_cast<float>(a) == static_cast<float>(b);
  }
};

/// The upper half of a float: 1 sign, 8 exponent, 7 fraction bits; float's range, 2 to 3 decimal
/// digits.
struct BFloat16 {
  uint16_t bits = 0;
  constexpr BFloat16() = default;
  constexpr explicit BFloat16(float value) : bits(detail::float_to_bfloat16_bits(value)) {}
  constexpr explicit BFloat16(double value)
      : bits(static_cast<uint16_t>(detail::round_to_16(value, 7, 127) | detail::sign16(value))) {}
  constexpr explicit operator float() const {
    return bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
  constexpr explicit operator double() const { return static_cast<float>(*this); }
  /// The number with these bits.
  static constexpr BFloat16 from_bits(uint16_t bits) {
    BFloat16 b;
    b.bits = bits;
    return b;
  }
  friend constexpr bool operator==(BFloat16 a, BFloat16 b) {
    return static_cast<float>(a) == static_cast<float>(b);
  }
};

}  // namespace halftape
