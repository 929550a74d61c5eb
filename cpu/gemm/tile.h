// A tile of a packed product: sums that stay in registers, and what becomes of them.
#pragma once
#include "halftape/cpu/gemm/pack.h"

#ifdef HALFTAPE_SIMD
#include <array>
#include <cstring>
#include <utility>

#include "halftape/core/contract/backend.h"

namespace halftape::cpu {

/// What a tile does with sums that are whole: + bias, then relu, which writes its mask, or its
/// gradient, which reads it. Anything may be null, and begins at the tile's first column.
struct Ending {
  const float* bias = nullptr;  // as far behind the columns as a tile reaches
  Epilogue epilogue = Epilogue::None;
  uint8_t* mask = nullptr;
  int64_t mask_row = 0;  // bytes from one row to the next
  Ending at(int64_t i, int64_t j) const {
    return {bias ? bias + j : nullptr, epilogue, mask ? mask + i * mask_row + j / 8 : nullptr,
            mask_row};
  }
};

/// What becomes of sums.
struct Result {
  char* data;
  Dtype dtype;
  int64_t row, column;  // steps in elements
  float alpha, beta;
  Ending ending;
  bool bias_of_rows;  // ending.bias is along the rows instead
  void* at(int64_t i, int64_t j) const {
    return data + (i * row + j * column) * static_cast<int64_t>(element_size(dtype));
  }
  /// True if nothing is left to add to sums but what a tile does itself.
  bool takes_sums() const { return alpha == 1 && beta == 0 && !(ending.bias && bias_of_rows); }
};

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
  if (ending && ending->bias)
    each([&](int, int v, Vec& sum) { sum = sum + simd::load(ending->bias + v * kWidth); });
  if (ending && ending->epilogue != Epilogue::None) {
    uint8_t* mask = ending->mask;
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) {
      simd::Bits bits[V];
      if (ending->epilogue == Epilogue::DRelu) {
        std::memcpy(bits, mask, sizeof bits);
      } else {
        for (int v = 0; v < V; ++v) bits[v] = simd::not_below_or_zero(sums[i][v]);
        if (mask) std::memcpy(mask, bits, sizeof bits);
      }
      for (int v = 0; v < V; ++v) sums[i][v] = simd::keep(bits[v], sums[i][v]);
      if (mask) mask += ending->mask_row;
    }
  }
  each([&](int i, int v, Vec& sum) { simd::store(c + i * pitch + v * kWidth, sum); });
}

template <int V, int P, bool kAlong, int... M>
constexpr std::array<Tile, kRows> tiles_of_width(std::integer_sequence<int, M...>) {
  return {&tile<M + 1, V, P, kAlong>...};
}
template <int P, bool kAlong, int... V>
constexpr std::array<std::array<Tile, kRows>, kRegisters> tiles_of(
    std::integer_sequence<int, V...>) {
  return {tiles_of_width<V + 1, P, kAlong>(std::make_integer_sequence<int, kRows>())...};
}
/// [V − 1][M − 1]: of V registers of columns and M rows. kAlong: the words of a row of a are
/// neighbours; else those of a depth.
template <int P, bool kAlong>
constexpr auto tiles = tiles_of<P, kAlong>(std::make_integer_sequence<int, kRegisters>());

/// Sums of rows i… and columns j… into d, which takes them or has its own to add. Rows of sums are
/// padded to kColumns.
template <class T>
void finish_as(const Result& d, const float* sums, int64_t pitch, int64_t i, int64_t j, int rows,
               int columns) {
  const bool ready = d.takes_sums();
  for (int r = 0; r < rows; ++r, sums += pitch) {
    T* to = static_cast<T*>(d.at(i + r, j));
    auto value = [&](auto sum, auto before, auto bias, auto splat) {
      if (ready) return sum;
      auto v = d.alpha == 1 ? sum : splat(d.alpha) * sum;
      if (d.beta != 0) v = v + splat(d.beta) * before();
      if (d.ending.bias) v = v + (d.bias_of_rows ? splat(d.ending.bias[i + r]) : bias());
      return v;
    };
    if constexpr (!std::is_same_v<T, double>) {
      if (d.column == 1) {
        for (int c = 0; c < columns; c += kWidth) {
          const int n = std::min(kWidth, columns - c);
          const Vec v = value(
              simd::load(sums + c), [&] { return simd::load_first(to + c, n); },
              [&] { return simd::load(d.ending.bias + j + c); },
              [](float x) { return simd::splat(x); });
          if (n == kWidth)
            simd::store(to + c, v);
          else
            simd::store_first(to + c, v, n);
        }
        continue;
      }
    }
    for (int c = 0; c < columns; ++c) {
      T& y = to[c * d.column];
      y = convert<T>(value(
          sums[c], [&] { return convert<float>(y); }, [&] { return d.ending.bias[j + c]; },
          [](float x) { return x; }));
    }
  }
}
using Finish = decltype(&finish_as<float>);
inline Finish finisher(Dtype d) {
  return d == kFloat64    ? &finish_as<double>
         : d == kFloat32  ? &finish_as<float>
         : d == kBFloat16 ? &finish_as<BFloat16>
                          : &finish_as<Half>;
}

}  // namespace halftape::cpu

#endif
