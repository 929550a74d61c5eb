// Exercise 2: how many gradients are where.
#pragma once
#include <halftape/core/half.h>

#include <cmath>
#include <cstdint>
#include <span>

struct Ledger {
  int64_t zeros = 0;
  int64_t subnormals = 0;  // 0 < |x| < 2^-14
  int64_t normals = 0;     // 2^-14 ≤ |x| < 2^15
  int64_t large = 0;       // 2^15 ≤ |x|, and finite
  int64_t nonfinite = 0;   // infinite or NaN
};

inline Ledger ledger(std::span<const halftape::Half> numbers) {
  Ledger counts;
  for (const halftape::Half number : numbers) {
    const float size = std::fabs(static_cast<float>(number));
    counts.nonfinite += !std::isfinite(size);
    counts.zeros += size == 0;
    counts.subnormals += size > 0 && size < 0x1p-14f;
    counts.normals += size >= 0x1p-14f && size < 0x1p15f;
    counts.large += size >= 0x1p15f && std::isfinite(size);
  }
  return counts;
}
