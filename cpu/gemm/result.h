// What becomes of the sums of a product.
#pragma once
#include "halftape/cpu/gemm/pack.h"

#ifdef HALFTAPE_SIMD
#include <cstring>

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

/// The ending of M rows of sums, in V registers each.
template <int M, int V>
[[gnu::always_inline]] inline void end(const Ending& ending, Vec (&sums)[M][V]) {
  if (ending.bias) {
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sums[i][v] = sums[i][v] + simd::load(ending.bias + v * kWidth);
  }
  if (ending.epilogue == Epilogue::None) return;
  uint8_t* mask = ending.mask;
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i) {
    simd::Bits bits[V];
    if (ending.epilogue == Epilogue::DRelu) {
      std::memcpy(bits, mask, sizeof bits);
    } else {
      for (int v = 0; v < V; ++v) bits[v] = simd::not_below_or_zero(sums[i][v]);
      if (mask) std::memcpy(mask, bits, sizeof bits);
    }
    for (int v = 0; v < V; ++v) sums[i][v] = simd::keep(bits[v], sums[i][v]);
    if (mask) mask += ending.mask_row;
  }
}

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
