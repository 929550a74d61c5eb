// A tile of a packed product, whose sums stay in registers.
#pragma once
#include "halftape/cpu/gemm/result.h"

#ifdef HALFTAPE_SIMD
#include <array>
#include <utility>

namespace halftape::cpu {

// What the registers hold: of 32 (16), five (four) are left for operands. Of the shapes that fit,
// these load the fewest operands.
inline constexpr int kRegisters = kWidth == 16 ? 3 : 2;  // of columns
inline constexpr int kRegisterRows = kWidth == 16 ? 9 : 6;

/// c ← c, or 0 when it is the first block of the depth, + a·b, one fused multiply-add for each (one
/// dot product of two); of the last block, with an ending. b's depths are b_step words apart, c's
/// rows `pitch`; of a, whose words of a row or of a depth are neighbours, the others are a_step.
using Tile = void (*)(int64_t words, const float* a, int64_t a_step, const float* b, int64_t b_step,
                      float* c, int64_t pitch, bool first, const Ending* ending);

/// a[i·step] from pointers to every third row: an address may hold one or two steps, and so the
/// nine rows of a tile take three registers.
template <int M>
class RowsOfA {
 public:
  RowsOfA(const float* a, int64_t step) : step_(step) {
#pragma GCC unroll 16
    for (int i = 0; i < M; i += 3) thirds_[i / 3] = a + i * step;
  }
  Vec splat(int i, int64_t w) const { return simd::splat(thirds_[i / 3][i % 3 * step_ + w]); }

 private:
  int64_t step_;
  const float* thirds_[(M + 2) / 3];
};

/// Of M rows and V registers of columns.
template <int M, int V, int P, bool kAlong>
void tile(int64_t words, const float* a, int64_t a_step, const float* b, int64_t b_step, float* c,
          int64_t pitch, bool first, const Ending* ending) {
  Vec sums[M][V];
  const auto each = [&](const auto& f) {
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) f(i, v, sums[i][v]);
  };
  each([&](int i, int v, Vec& sum) {
    sum = first ? simd::zero() : simd::load(c + i * pitch + v * kWidth);
  });
  const RowsOfA<M> rows(a, a_step);
#pragma GCC unroll 4
  for (int64_t w = 0; w < words; ++w) {
    Vec y[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) y[v] = simd::load(b + v * kWidth);
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) {
      const Vec x = kAlong ? rows.splat(i, w) : simd::splat(a[i]);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sums[i][v] = simd::add_product<P>(x, y[v], sums[i][v]);
    }
    if (!kAlong) a += a_step;
    b += b_step;
  }
  if (ending) end(*ending, sums);
  each([&](int i, int v, Vec& sum) { simd::store(c + i * pitch + v * kWidth, sum); });
}

template <int V, int P, bool kAlong, int... M>
constexpr std::array<Tile, kRegisterRows> tiles_of_width(std::integer_sequence<int, M...>) {
  return {&tile<M + 1, V, P, kAlong>...};
}
template <int P, bool kAlong, int... V>
constexpr std::array<std::array<Tile, kRegisterRows>, kRegisters> tiles_of(
    std::integer_sequence<int, V...>) {
  return {tiles_of_width<V + 1, P, kAlong>(std::make_integer_sequence<int, kRegisterRows>())...};
}
/// [V − 1][M − 1]: of V registers of columns and M rows. kAlong: the words of a row of a are
/// neighbours; else those of a depth.
template <int P, bool kAlong>
constexpr auto tiles = tiles_of<P, kAlong>(std::make_integer_sequence<int, kRegisters>());

/// Sums in vector registers, of words of P elements.
template <int P>
class VectorTiles {
 public:
  static constexpr int kElements = P, kRows = kRegisterRows, kColumns = kRegisters * kWidth;
  static constexpr int kTogether = 1;   // words that a step takes
  static constexpr bool kExact = true;  // no row is written that is not asked for
  static constexpr int64_t kBlockRows = 36 * kRows;
  static constexpr int64_t kSerial = 1 << 20;  // multiply-adds that are not worth a second thread

  static void pack_a(const Factor& a, int64_t lines, int64_t depth, int64_t words, float* panels) {
    pack<kRows, P>(a, lines, depth, words, panels);
  }
  /// A tile, see Tile, of so many rows and registers of columns.
  void multiply(int rows, int registers, int64_t words, const LinesOfA& a, const float* b,
                int64_t b_step, float* c, int64_t pitch, bool first, const Ending* ending) const {
    // Pairs are always packed, depth by depth.
    const auto& of = P == 1 && a.along ? tiles<1, true> : tiles<P, false>;
    of[static_cast<size_t>(registers - 1)][static_cast<size_t>(rows - 1)](
        words, a.data, a.step, b, b_step, c, pitch, first, ending);
  }
};

}  // namespace halftape::cpu

#endif
