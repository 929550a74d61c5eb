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
/// fourteen rows of a tile take five registers.
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

template <int M, int P, bool kAlong>
void tile(int64_t words, const float* a, int64_t a_step, const float* b, int64_t b_step, float* c,
          int64_t pitch, bool first, const Ending* ending) {
  Vec sums[M][2];
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i) {
    sums[i][0] = first ? simd::zero() : simd::load(c + i * pitch);
    sums[i][1] = first ? simd::zero() : simd::load(c + i * pitch + kWidth);
  }
  const RowsOfA<M> rows(a, a_step);
#pragma GCC unroll 4
  for (int64_t w = 0; w < words; ++w) {
    const Vec b0 = simd::load(b), b1 = simd::load(b + kWidth);
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) {
      const Vec x = kAlong ? rows.splat(i, w) : simd::splat(a[i]);
      sums[i][0] = simd::add_product<P>(x, b0, sums[i][0]);
      sums[i][1] = simd::add_product<P>(x, b1, sums[i][1]);
    }
    if (!kAlong) a += a_step;
    b += b_step;
  }
  if (ending && ending->bias) {
    const Vec b0 = simd::load(ending->bias), b1 = simd::load(ending->bias + kWidth);
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) sums[i][0] = sums[i][0] + b0, sums[i][1] = sums[i][1] + b1;
  }
  if (ending && ending->epilogue != Epilogue::None) {
    uint8_t* mask = ending->mask;
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) {
      simd::Bits bits[2];
      if (ending->epilogue == Epilogue::DRelu) {
        std::memcpy(bits, mask, sizeof bits);
      } else {
        for (int half = 0; half < 2; ++half) bits[half] = simd::not_below_or_zero(sums[i][half]);
        if (mask) std::memcpy(mask, bits, sizeof bits);
      }
      for (int half = 0; half < 2; ++half) sums[i][half] = simd::keep(bits[half], sums[i][half]);
      if (mask) mask += ending->mask_row;
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i) {
    simd::store(c + i * pitch, sums[i][0]);
    simd::store(c + i * pitch + kWidth, sums[i][1]);
  }
}

template <int P, bool kAlong, int... M>
constexpr std::array<Tile, sizeof...(M)> tiles_of(std::integer_sequence<int, M...>) {
  return {&tile<M + 1, P, kAlong>...};
}
/// [M − 1]: of M rows. kAlong: the words of a row of a are neighbours; else those of a depth.
template <int P, bool kAlong>
constexpr auto tiles = tiles_of<P, kAlong>(std::make_integer_sequence<int, kRows>());

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
