// PyTorch's random numbers on the CPU: the Mersenne Twister, and numbers from its words.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

namespace halftape {

/// MT19937 with the rest of the state of PyTorch's CPU generator. The same seed gives the same
/// numbers as PyTorch, in the same order: bit for bit, except that normal and exponential numbers
/// use the C library's functions.  Matsumoto & Nishimura 1998, ACM TOMACS 8(1).
struct Mt19937 {
  static constexpr size_t kWords = 624;  // of the state

  /// Only the lower 32 bits of the seed count, as in PyTorch.
  explicit Mt19937(uint64_t seed = 5489);
  /// The next word.
  uint32_t random();
  /// Two words; the first is the upper half.
  uint64_t random64();
  /// In [0, 1), with 24 bits of one word.
  float uniform_float() { return static_cast<float>(random() & 0xffffff) * 0x1p-24f; }
  /// In [0, 1), with 53 bits of two words.
  double uniform() { return static_cast<double>(random64() & ((uint64_t{1} << 53) - 1)) * 0x1p-53; }
  /// Standard normal, in pairs by Box & Muller; next_normal keeps the second of a pair.
  double normal();
  /// Of rate 1.
  double exponential();
  /// torch::randperm's order, of fewer than 2^32/20 elements: one word for each place but the
  /// last.
  template <class T>
  void shuffle(std::span<T> order) {
    const size_t n = order.size();
    for (size_t i = 0; i + 1 < n; ++i) {
      const uint64_t x = n < ~uint32_t{0} / 20 ? random() : random64();
      std::swap(order[i], order[i + x % (n - i)]);
    }
  }

  bool operator==(const Mt19937&) const = default;

  // The whole state, for saving.
  std::array<uint32_t, kWords> words;
  uint32_t position = kWords;  // of the next word; kWords: all words are used up
  std::optional<double> next_normal;
};

}  // namespace halftape
