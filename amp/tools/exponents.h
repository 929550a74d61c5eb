// What a 16-bit dtype loses of some numbers at each loss scale, from one count of them by powers of
// two.
#pragma once
#include <array>
#include <cstdint>
#include <ostream>

#include "halftape/autograd/tensor.h"
#include "halftape/core/formula/exponents.h"

namespace halftape::amp {

/// Counts of numbers by powers of two. Counts of several tensors add. What a dtype loses is exact
/// for 16-bit numbers from 2^-126 on; smaller ones count as if they were just below 2^-126. Of
/// float32 numbers, those less than 1/4096 below a power of two may round up to inf uncounted.
struct ExponentCounts {
  std::array<int64_t, kExponentSlots> slots{};

  /// Of all numbers, also zeros and those that are not finite.
  int64_t total() const;
  int64_t zeros() const { return slots[1]; }
  int64_t nans() const { return slots[510]; }
  int64_t infs() const { return slots[511]; }
  /// Finite numbers that are not zero.
  int64_t numbers() const { return total() - zeros() - nans() - infs(); }
  /// Numbers with 2^exponent ≤ |x| < 2^(exponent + 1), −126 ≤ exponent ≤ 127.
  int64_t at(int exponent) const;

  // Of numbers(), those that as x·2^shift in `dtype` (float16, bfloat16 or float32), rounded to the
  // nearest, are …
  int64_t vanishing(int shift, Dtype dtype = kFloat16) const;    // … 0
  int64_t subnormal(int shift, Dtype dtype = kFloat16) const;    // … not 0, below 2^-14 (2^-126)
  int64_t overflowing(int shift, Dtype dtype = kFloat16) const;  // … infinite

  ExponentCounts& operator+=(const ExponentCounts& other);
  bool operator==(const ExponentCounts&) const = default;
};

/// Counts the elements of x, of a floating dtype. Waits for the device.
ExponentCounts count_exponents(const Tensor& x);

/// A bar for each power of two that occurs, and the zeros, infs and NaNs.
std::ostream& operator<<(std::ostream& out, const ExponentCounts& counts);

}  // namespace halftape::amp
