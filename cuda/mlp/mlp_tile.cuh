// The steps on a tile of an MLP's rows: staging matrices in shared memory, multiplying fragments of
// 16 rows by a weight, the activation, and the products across rows for a weight's gradient.
// mlp_tiles.cuh makes a kernel of them.
#pragma once
#include <limits>

#include "halftape/core/contract/backend.h"
#include "halftape/core/formula/reduce.h"
#include "halftape/core/formula/unary.h"
#include "halftape/cuda/vector/fragments.cuh"
#include "halftape/cuda/vector/index_check.cuh"

namespace halftape::cuda {

inline constexpr int kMostRows = 128;  // of a tile: 16 for each warp
inline constexpr int kKeptLayers = 5;
inline constexpr int kKeptWidth = 64;
inline constexpr unsigned long long kNone = ~0ull;  // the position of no gradient

enum class Activation : uint8_t { None, Relu, Gelu, Silu, Tanh, Sigmoid };

struct Identity {
  static constexpr Saves saves = Saves::Nothing;
  __device__ static float f(float x) { return x; }
  __device__ static float df(float g, float) { return g; }
};

/// Calls f(Type<formula>{}). All threads have the same activation, so they do not diverge.
template <class F>
__device__ void with_formula(Activation a, const F& f) {
  switch (a) {
    case Activation::None:
      return f(Type<Identity>{});
    case Activation::Relu:
      return f(Type<formula::Relu>{});
    case Activation::Gelu:
      return f(Type<formula::GeluTanh>{});
    case Activation::Silu:
      return f(Type<formula::Silu>{});
    case Activation::Tanh:
      return f(Type<formula::Tanh>{});
    case Activation::Sigmoid:
      break;
  }
  f(Type<formula::Sigmoid>{});
}

struct Layer {
  const char *weight, *bias;  // bias: null for none
  Dtype weight_dtype, bias_dtype;
  int in, out;
  // Places in shared memory, in elements: the weight, (out, in); the layer's input, (rows, in); the
  // gradient at its output, (rows, out), which replaces the inputs of its activation.
  int weight_at, input_at, slope_at;
  int gradient_at;  // in a block's sums: the weight's gradient, then the bias's
};

struct Task {
  Layer layers[kFewLayers];
  int count;
  Activation activation;
  bool saves_input;  // the derivative needs its input
  bool resident;     // all weights are in shared memory, else one at a time
  bool gradients;    // gradients are wanted, not the loss alone
  bool classes;      // the target holds classes
  Dtype x_dtype, target_dtype;
  int64_t target_bytes;  // of a row
  int other_input_at;    // the place of the next tile's x
  int biases_at;
  int64_t rows;
  const char *x, *target;
  const float* g;  // null: 1
  float factor;    // of the gradient at the outputs
  float* sums;     // (blocks, width): sums of the gradients, then of the loss
  int64_t width;
  char* dx;                       // null: not wanted
  unsigned long long* first_bad;  // is set to kNone; null: no gradient is checked
  Range range;
};

/// All threads of the block: copies `height` rows from `first` on of a matrix with `rows` rows,
/// rounded to T and padded with zeros. They are there after cp_async_wait() and a barrier.
template <class T>
__device__ void stage(T* to, const char* from, Dtype dtype, int64_t first, int64_t rows, int height,
                      int width) {
  const int across = padded(width) / kPack, stride = stride_of(width);
  const bool whole = width % kPack == 0 && is_aligned(from);
  const auto item = static_cast<int64_t>(element_size(dtype));
  for (int i = static_cast<int>(threadIdx.x); i < height * across;
       i += static_cast<int>(blockDim.x)) {
    const int row = i / across, column = i % across * kPack;
    const int64_t begin = (first + row) * width + column;
    auto* const place = reinterpret_cast<Pack<T>*>(to + row * stride + column);
    const bool there = first + row < rows;
    if (whole && there && column < width && dtype == dtype_of<T>) {
      cp_async(place, from + begin * item);
      continue;
    }
    float v[kPack] = {};
    if (whole && there && column < width)
      load_pack(v, from, dtype, begin / kPack);
    else if (there)
      for (int k = 0; k < kPack && column + k < width; ++k)
        v[k] = load_packed(from + (begin + k) * item, dtype);
    Pack<T> p;
    for (int k = 0; k < kPack; ++k) p.v[k] = as<T>(v[k]);
    *place = p;
  }
}

/// Multiplies a (16, depth), in fragments, by w (depth, columns). Calls finish(j, c, both) for each
/// 32 columns: c[q] is the fragment of columns 32·j + 8·q …; without `both` only the first two hold
/// columns. kTurned: w is stored as (depth, columns), else as (columns, depth). bias: added, or
/// null.
template <bool kTurned, int K, class T, class F>
__device__ __forceinline__ void multiply(const unsigned (&a)[K][4], int depth, const T* w,
                                         int stride, int columns, const float* bias, Lane lane,
                                         const F& finish) {
#pragma unroll
  for (int j = 0; j < K / 2; ++j) {
    const int first = 32 * j;
    if (first >= columns) break;
    const bool both = first + 16 < columns;
    float c[4][4] = {};
    if (bias) {
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        c[q][0] = c[q][2] = bias[first + 8 * q + lane.t];
        c[q][1] = c[q][3] = bias[first + 8 * q + lane.t + 1];
      }
    }
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (16 * k >= depth) break;
      const auto from = [&](int column) {
        return kTurned ? &w[(16 * k + lane.down8) * stride + column + lane.across8]
                       : &w[(column + lane.right8) * stride + 16 * k + lane.below8];
      };
      unsigned b[4];
      load_matrices<kTurned>(b, from(first));
      multiply_add<T>(c[0], a[k], b[0], b[1]);
      multiply_add<T>(c[1], a[k], b[2], b[3]);
      if (!both) continue;
      load_matrices<kTurned>(b, from(first + 16));
      multiply_add<T>(c[2], a[k], b[0], b[1]);
      multiply_add<T>(c[3], a[k], b[2], b[3]);
    }
    finish(j, c, both);
  }
}

/// Calls f(q, h) for both rows h of a thread's elements in each fragment q of multiply().
template <class F>
__device__ __forceinline__ void each_pair(bool both, const F& f) {
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    if (q >= 2 && !both) break;
#pragma unroll
    for (int h = 0; h < 2; ++h) f(q, h);
  }
}

/// The part of a weight's gradient that one warp computes: 16 rows of the weight from `row` on, its
/// columns from `begin` to `end`.
struct WarpPart {
  int row, begin, end;
  /// Sets part number `unit`; false behind the last.
  __device__ bool take(int unit, int warps, const Layer& o) {
    const int down = padded(o.out) / 16, across = padded(o.in) / 16;
    const int groups = warps < down ? 1 : warps / down;
    const int share = (across + groups - 1) / groups * 16;
    row = unit % down * 16, begin = unit / down * share;
    end = begin + share < padded(o.in) ? begin + share : padded(o.in);
    return unit < down * groups;
  }
};

/// acc += dᵀ·h over the tile's rows, 16 rows by 8·F columns of the weight; sums += dᵀ·1.
template <class T, int F>
__device__ __forceinline__ void across_rows(float (&acc)[F][4], float (&sums)[4], const T* d,
                                            int d_stride, const T* h, int h_stride, int row,
                                            int begin, int end, int tile, bool summed, Lane lane) {
  const unsigned one = pair_of<T>(1, 1);
#pragma unroll 2
  for (int k = 0; k < tile; k += 16) {
    unsigned a[4], b[4];
    load_matrices<true>(a, &d[(k + lane.right8) * d_stride + row + lane.below8]);
#pragma unroll
    for (int f = 0; f < F; f += 2) {
      if (begin + 8 * f >= end) break;
      load_matrices<true>(b, &h[(k + lane.down8) * h_stride + begin + 8 * f + lane.across8]);
      multiply_add<T>(acc[f], a, b[0], b[1]);
      multiply_add<T>(acc[f + 1], a, b[2], b[3]);
    }
    if (summed) multiply_add<T>(sums, a, one, one);
  }
}

/// Writes or adds a part's elements, those within the weight, to the block's sums.
template <int F>
__device__ __forceinline__ void put(float* sums, const float (&acc)[F][4], const Layer& o, int row,
                                    int begin, int end, bool add, Lane lane) {
  const int columns = end < o.in ? end : o.in;
#pragma unroll
  for (int f = 0; f < F; ++f)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = row + lane.g + 8 * (i / 2), c = begin + 8 * f + lane.t + i % 2;
      if (r >= o.out || c >= columns) continue;
      float& to = sums[o.gradient_at + r * o.in + c];
      to = add ? to + acc[f][i] : acc[f][i];
    }
}
__device__ inline void put_bias(float* sums, float first, float second, const Layer& o, int row,
                                bool add, Lane lane) {
  if (lane.t != 0) return;  // four lanes have the same sums
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int r = row + lane.g + 8 * h;
    if (r >= o.out) continue;
    float& to = sums[o.gradient_at + o.out * o.in + r];
    to = (add ? to : 0) + (h == 0 ? first : second);
  }
}

/// Running ln Σ eˣ of a row: the eˣ are divided by that of the largest x so far.
struct LogSum {
  float top = -std::numeric_limits<float>::infinity(), sum = 0;

  /// Raises `top` to x if x is larger. As long as all x are −∞ the sum is 0.
  __device__ void rise(float x) {
    const float before = top;
    top = formula::Max::step(top, x);
    if (before != top) sum *= exp(before - top);
  }
  __device__ void join(LogSum other) {
    rise(other.top);
    if (other.top != -std::numeric_limits<float>::infinity())
      sum += other.sum * exp(other.top - top);
  }
};

/// Calls y = f(Type<formula>{}, at, h, u, v) for each pair (u, v) of the 32 columns of multiply().
/// The pair is in row h, `at` elements behind the thread's first one in rows of `stride`. y goes
/// into `next`, the fragments of the next product's operand.
template <class T, int K, class F>
__device__ __forceinline__ void each_activation(unsigned (&next)[K][4], int j,
                                                const float (&c)[4][4], bool both, int stride,
                                                Activation activation, const F& f) {
  const auto all = [&](auto t) {
    each_pair(both, [&](int q, int h) {
      next[2 * j + q / 2][q % 2 * 2 + h] =
          f(t, 8 * h * stride + 32 * j + 8 * q, h, 32 * j + 8 * q, c[q][2 * h], c[q][2 * h + 1]);
    });
  };
  if (activation == Activation::None) return all(Type<Identity>{});
  if (activation == Activation::Relu) return all(Type<formula::Relu>{});
  // The others take turns in one piece of code, since unrolled it would be too long. The registers
  // shift by one each time, because they cannot be indexed.
  float u[8], v[8];
  unsigned y[8];
#pragma unroll
  for (int p = 0; p < 8; ++p) u[p] = c[p / 2][p % 2 * 2], v[p] = c[p / 2][p % 2 * 2 + 1], y[p] = 0;
#pragma unroll 1
  for (int p = 0; p < 8; ++p) {
    const int q = p / 2, h = p % 2;
    unsigned made = 0;
    if (q < 2 || both)
      with_formula(activation, [&](auto t) {
        made = f(t, 8 * h * stride + 32 * j + 8 * q, h, 32 * j + 8 * q, u[0], v[0]);
      });
#pragma unroll
    for (int i = 0; i < 7; ++i) u[i] = u[i + 1], v[i] = v[i + 1], y[i] = y[i + 1];
    y[7] = made;
  }
#pragma unroll
  for (int p = 0; p < 8; ++p) next[2 * j + p / 4][p / 2 % 2 * 2 + p % 2] = y[p];
}

}  // namespace halftape::cuda
