// Counter-based random bits: the same seed and counter give the same bits on every device and in
// any order. Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", Philox4x32-10.
#pragma once
#include <cstdint>

#include "halftape/core/formula/ops.h"

namespace halftape {

struct PhiloxBlock {
  uint32_t v[4];
};

HALFTAPE_HD PhiloxBlock philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  uint32_t c[4] = {static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
                   static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)};
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * c[0], b = uint64_t{0xCD9E8D57u} * c[2];
    const uint32_t c1 = c[1], c3 = c[3];
    c[0] = static_cast<uint32_t>(b >> 32) ^ c1 ^ k0;
    c[1] = static_cast<uint32_t>(b);
    c[2] = static_cast<uint32_t>(a >> 32) ^ c3 ^ k1;
    c[3] = static_cast<uint32_t>(a);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c[0], c[1], c[2], c[3]}};
}

/// The i-th 32-bit word of stream (seed, offset): block i / 4 at counter offset + i / 4.
HALFTAPE_HD uint32_t random_bits(uint64_t seed, uint64_t offset, uint64_t i) {
  return philox(seed, offset + i / 4, 0).v[i % 4];
}
/// ⌊r·width / 2^64⌋ for r of 64 bits: uniform in 0 … width − 1 but for width / 2^64.
HALFTAPE_HD uint64_t integer_below(uint64_t width, uint32_t r_high, uint32_t r_low) {
  const uint64_t high = width >> 32, low = width & 0xffffffffu;
  const uint64_t middle = r_high * low + (r_low * low >> 32);
  return r_high * high + (middle >> 32) + ((r_low * high + (middle & 0xffffffffu)) >> 32);
}
/// Element i of Distribution::Bits, from a word of the stream and one of another counter.
HALFTAPE_HD double integer_between(double least, double most, uint32_t word, uint32_t other) {
  const auto from = static_cast<int64_t>(least);
  const auto width = static_cast<uint64_t>(static_cast<int64_t>(most) - from) + 1;
  return static_cast<double>(from + static_cast<int64_t>(integer_below(width, word, other)));
}
/// Uniform in [0, 1) with 24 bits.
HALFTAPE_HD float uniform01(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

}  // namespace halftape
