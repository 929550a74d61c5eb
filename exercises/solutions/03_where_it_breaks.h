// Exercise 3: at which loss weight does float16 stop learning?
#pragma once
#include <support/training.h>

#include <cmath>
#include <cstdint>

/// gradients.counts[i] numbers have 2^(i + Histogram::kLeast) ≤ |x| < 2^(i + 1 +
/// Histogram::kLeast).
inline double breaking_weight(const course::Histogram& gradients) {
  int64_t all = 0, larger = 0;
  for (const int64_t count : gradients.counts) all += count;
  auto i = static_cast<int>(gradients.counts.size());
  while (larger * 20 < all)
    larger += gradients.counts[static_cast<size_t>(--i)];  // 95 % are smaller
  return std::exp2(-25 - (i + course::Histogram::kLeast));
}
