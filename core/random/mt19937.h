// PyTorch's random numbers on the CPU: the Mersenne Twister, and how numbers are made of its words.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

namespace halftape {

/// MT19937 with what PyTorch's CPU generator keeps beside it. The same seed gives PyTorch's numbers
/// one after the other, bit for bit where no logarithm or angle is in them, and otherwise with the
/// C library's.  Matsumoto & Nishimura 1998, ACM TOMACS 8(1).
struct Mt19937 {
  static constexpr size_t kWords = 624;

  /// Of the seed the lower 32 bits count, as in PyTorch.
  explicit Mt19937(uint64_t seed = 5489);
  uint32_t random();
  /// Two words; the first is the upper half.
  uint64_t random64();
  /// In [0, 1), with 24 bits of one word.
  float uniform_float() { return static_cast<float>(random() & 0xffffff) * 0x1p-24f; }
  /// In [0, 1), with 53 bits of two words.
  double uniform() { return static_cast<double>(random64() & ((uint64_t{1} << 53) - 1)) * 0x1p-53; }
  /// Standard normal: Box & Muller's pairs, the second of which waits in next_normal.
  double normal();
  /// Of rate 1.
  double exponential();
  /// torch::randperm's order of what stands there: a word for each place but the last; PyTorch's
  /// below 2^32/20 of them.
  template <class T>
  void shuffle(std::span<T> order) {
    const size_t n = order.size();
    for (size_t i = 0; i + 1 < n; ++i) {
      const uint64_t x = n < ~uint32_t{0} / 20 ? random() : random64();
      std::swap(order[i], order[i + x % (n - i)]);
    }
  }

  bool operator==(const Mt19937&) const = default;

  // All that it is, to be saved.
  std::array<uint32_t, kWords> words;
  uint32_t position = kWords;  // of the next word; at the end, all are made anew
  std::optional<double> next_normal;
};

}  // namespace halftape
