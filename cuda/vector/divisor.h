// Division by a number that is known when a kernel is launched.
#pragma once
#include <bit>
#include <cstdint>

#include "halftape/core/host_device.h"

namespace halftape::cuda {

/// Divides n ≥ 0 by a positive number. Below 2³¹ that is a product and a shift, as Granlund and
/// Montgomery 1994 (PLDI, "Division by invariant integers using multiplication") do it for words of
/// 32 bits: n/d = ⌊(⌊n·f/2³²⌋ + n)/2ˢ⌋ with s = ⌈log₂ d⌉ and f = ⌊2³²(2ˢ − d)/d⌋ + 1.
struct Divisor {
  int64_t size;
  uint32_t factor, shift;

  Divisor() = default;
  Divisor(int64_t d) : size(d), factor(0), shift(31) {  // NOLINT: a number is one
    if (d < 1 || d > int64_t{1} << 31) return;          // n below 2³¹ gives 0
    shift = static_cast<uint32_t>(std::bit_width(static_cast<uint64_t>(d - 1)));
    factor = static_cast<uint32_t>(
        ((((uint64_t{1} << shift) - static_cast<uint64_t>(d)) << 32) / static_cast<uint64_t>(d)) +
        1);
  }
  HALFTAPE_HD operator int64_t() const { return size; }  // NOLINT: a number is one

  struct Result {
    int64_t quotient, rest;
  };
  HALFTAPE_HD Result divide(int64_t n) const {
    int64_t q = 0;
    if (n >> 31 == 0) {
      const auto low = static_cast<uint32_t>(n);
      q = (static_cast<uint32_t>(uint64_t{low} * factor >> 32) + low) >> shift;
    } else {
      q = n / size;
    }
    return {q, n - q * size};
  }
};

}  // namespace halftape::cuda
