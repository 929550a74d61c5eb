#include "halftape/core/random/mt19937.h"

#include <cmath>

namespace halftape {
namespace {

constexpr double kTwoPi = 6.283185307179586477;

/// Replaces all words by the next ones.
void twist(std::array<uint32_t, Mt19937::kWords>& x) {
  constexpr size_t n = Mt19937::kWords, m = 397;
  for (size_t i = 0; i < n; ++i) {
    const uint32_t joined = (x[i] & 0x80000000u) | (x[(i + 1) % n] & 0x7fffffffu);
    x[i] = x[(i + m) % n] ^ (joined >> 1) ^ (joined & 1 ? 0x9908b0dfu : 0);
  }
}

}  // namespace

Mt19937::Mt19937(uint64_t seed) {
  words[0] = static_cast<uint32_t>(seed);
  for (uint32_t i = 1; i < kWords; ++i)
    words[i] = 1812433253u * (words[i - 1] ^ (words[i - 1] >> 30)) + i;
}

uint32_t Mt19937::random() {
  if (position >= kWords) {
    twist(words);
    position = 0;
  }
  uint32_t x = words[position++];
  x ^= x >> 11;
  x ^= (x << 7) & 0x9d2c5680u;
  x ^= (x << 15) & 0xefc60000u;
  return x ^ (x >> 18);
}

uint64_t Mt19937::random64() {
  const uint64_t upper = random();
  return upper << 32 | random();
}

double Mt19937::normal() {
  if (next_normal) {
    const double waiting = *next_normal;
    next_normal.reset();
    return waiting;
  }
  const double turn = uniform(), u = uniform();
  const double r = std::sqrt(-2 * std::log1p(-u)), angle = kTwoPi * turn;
  next_normal = r * std::sin(angle);
  return r * std::cos(angle);
}

double Mt19937::exponential() { return -std::log1p(-uniform()); }

}  // namespace halftape
