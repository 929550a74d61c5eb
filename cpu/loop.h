// Loading and storing chunks of any dtype and stride, and the walk over strided arrays in fixed
// tiles.
#pragma once
#include <algorithm>
#include <array>

#include "halftape/core/merged.h"
#include "halftape/cpu/chunk.h"
#include "halftape/cpu/parallel.h"

namespace halftape::cpu {

/// n ≤ 32 elements, `stride` apart, into lanes; the rest of the lanes is 1, harmless to every
/// formula.
template <class T, class S>
void load(const void* from, int64_t stride, int n, S* lanes) {
  const T* x = static_cast<const T*>(from);
  if (n == kLanes && stride == 1) {
    for (int k = 0; k < kLanes; ++k) lanes[k] = convert<S>(x[k]);
  } else if (stride == 0) {
    const S one = convert<S>(x[0]);
    for (int k = 0; k < kLanes; ++k) lanes[k] = one;
  } else {
    std::fill_n(lanes, kLanes, S(1));
    for (int k = 0; k < n; ++k) lanes[k] = convert<S>(x[k * stride]);
  }
}
template <class T, class S>
void store(const S* lanes, int n, void* to, int64_t stride) {
  T* y = static_cast<T*>(to);
  if (n == kLanes && stride == 1) {
    for (int k = 0; k < kLanes; ++k) y[k] = convert<T>(lanes[k]);
  } else {
    for (int k = 0; k < n; ++k) y[k * stride] = convert<T>(lanes[k]);
  }
}

template <class S>
using Load = void (*)(const void* from, int64_t stride, int n, S* lanes);
template <class S>
using Store = void (*)(const S* lanes, int n, void* to, int64_t stride);
template <class S>
Load<S> loader(Dtype d) {
  return visit(d, [](auto t) -> Load<S> { return &load<typename decltype(t)::type, S>; });
}
template <class S>
Store<S> storer(Dtype d) {
  return visit(d, [](auto t) -> Store<S> { return &store<typename decltype(t)::type, S>; });
}

/// Calls f(Type<S>{}) with the type a dtype computes in: double, float, or int64 for integers and
/// bool.
template <class F>
void with_compute_type(Dtype d, F&& f) {
  if (d == kFloat64)
    f(Type<double>{});
  else if (is_floating_point(d))
    f(Type<float>{});
  else
    f(Type<int64_t>{});
}

inline constexpr int64_t kTile = 16384;  // elements that one task works on

/// The walk over arrays of one shape, run by run.
template <size_t N>
struct Walk : Merged<N> {
  using Merged<N>::Merged, Merged<N>::shape, Merged<N>::operands;

  /// f(pointers, strides in elements, n): every run of the innermost dimension, cut into fixed
  /// tiles over the pool.
  template <class F>
  void run(const F& f) const {
    const int inner = shape.size() - 1;
    const int64_t length = shape[inner];
    int64_t rows = 1;
    for (int d = 0; d < inner; ++d) rows *= shape[d];
    if (rows == 0 || length == 0) return;
    const int64_t pieces = (length + kTile - 1) / kTile;  // of a long row
    const int64_t rows_per_tile = std::max<int64_t>(1, kTile / std::min(length, kTile));
    const int64_t row_tiles = (rows + rows_per_tile - 1) / rows_per_tile;
    std::array<int64_t, N> steps;
    for (size_t a = 0; a < N; ++a) steps[a] = operands[a].strides[inner] / operands[a].item;
    parallel_for(row_tiles * pieces, [&](int64_t tile) {
      const int64_t start = tile % pieces * kTile, n = std::min(kTile, length - start);
      const int64_t first = tile / pieces * rows_per_tile,
                    last = std::min(rows, first + rows_per_tile);
      std::array<char*, N> at;
      for (size_t a = 0; a < N; ++a) at[a] = operands[a].base + start * operands[a].strides[inner];
      Dims index = Dims::filled(inner, 0);  // of the row; counted on, as divisions cost more
      int64_t rest = first;
      for (int d = inner - 1; d >= 0; --d) {
        index[d] = rest % shape[d];
        for (size_t a = 0; a < N; ++a) at[a] += index[d] * operands[a].strides[d];
        rest /= shape[d];
      }
      for (int64_t row = first; row < last; ++row) {
        f(at, steps, n);
        for (int d = inner - 1; d >= 0; --d) {
          const bool carry = ++index[d] == shape[d];
          if (carry) index[d] = 0;
          const int64_t moved = carry ? 1 - shape[d] : 1;
          for (size_t a = 0; a < N; ++a) at[a] += moved * operands[a].strides[d];
          if (!carry) break;
        }
      }
    });
  }
};

}  // namespace halftape::cpu
