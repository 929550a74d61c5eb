// The kernel that takes a small MLP's rows through the layers and back, tile by tile. Each warp has
// 16 rows in its registers: the outputs of one product are the operand of the next. A tile's part
// of a weight's gradient is a product across its rows, from shared memory.
//
// The gradients of few, narrow layers stay in registers from tile to tile (kKept); others are added
// to the block's own sums in memory. After Müller 2021, "Real-time neural radiance caching",
// arXiv:2106.12372, section 4, which keeps the activations on the chip in the same way.
#pragma once
#include <algorithm>
#include <utility>

#include "halftape/cuda/mlp/mlp_tile.cuh"

namespace halftape::cuda {

/// A block's shared memory: weights, biases, the rows of a tile and the outputs of its layers.
/// Matrices of T with up to kWidth columns.
template <class T, int kWidth>
struct Block {
  const Task& task;
  T* const shared = reinterpret_cast<T*>(dynamic_shared());
  float* const biases;
  const Lane lane = {};
  const int warp = static_cast<int>(threadIdx.x) / kWarp,
            warps = static_cast<int>(blockDim.x) / kWarp;
  const int rows = 16 * warps;  // of a tile
  int x_at, other_at;           // the places of this tile's x and of the next one's
  int held = -1;                // the layer of the present weight, if there is one at a time

  __device__ explicit Block(const Task& t)
      : task(t),
        biases(reinterpret_cast<float*>(shared + t.biases_at)),
        x_at(t.layers[0].input_at),
        other_at(t.other_input_at) {}

  __device__ __forceinline__ void stage_weight(int l) {
    const Layer& o = task.layers[l];
    stage(shared + o.weight_at, o.weight, o.weight_dtype, 0, o.out, padded(o.out), o.in);
  }
  /// Stages all biases, and all weights if there is room for them.
  __device__ __forceinline__ void stage_layers() {
    for (int l = 0; l < task.count; ++l) {
      const Layer& o = task.layers[l];
      for (int i = static_cast<int>(threadIdx.x); i < kWidth; i += static_cast<int>(blockDim.x)) {
        float b = 0;
        if (o.bias && i < o.out)
          b = load_packed(o.bias + i * static_cast<int>(element_size(o.bias_dtype)), o.bias_dtype);
        biases[l * kWidth + i] = as<float>(as<T>(b));
      }
      if (task.resident) stage_weight(l);
    }
  }
  __device__ __forceinline__ const T* weight_of(int l) {
    if (!task.resident && held != l) {
      __syncthreads();
      stage_weight(l);
      cp_async_wait();
      __syncthreads();
      held = l;
    }
    return shared + task.layers[l].weight_at;
  }

  /// Starts to copy a tile's x into shared memory, and prefetches its targets.
  __device__ __forceinline__ void stage_rows(int64_t number, int at) {
    stage(shared + at, task.x, task.x_dtype, number * rows, task.rows, rows, task.layers[0].in);
    const int64_t begin = number * rows * task.target_bytes,
                  end = (number + 1) * rows < task.rows ? begin + rows * task.target_bytes
                                                        : task.rows * task.target_bytes;
    for (int64_t i = begin + 128 * int64_t{threadIdx.x}; i < end; i += 128 * int64_t{blockDim.x})
      prefetch(task.target + i);
  }
  /// The place of a tile's x, for which it waits. Starts to copy the next tile's.
  __device__ __forceinline__ int rows_of(int64_t number) {
    cp_async_wait();
    __syncthreads();  // this tile's x is there, and the last tile's is no longer read
    const int64_t next = number + gridDim.x;
    if (next * rows < task.rows) stage_rows(next, other_at);
    std::swap(x_at, other_at);
    return other_at;
  }
};

/// A block's sums of the gradients of weights and biases over its tiles.
template <class T, int kWidth>
struct GradientSums {
  static constexpr int kKept = kWidth <= kKeptWidth ? kKeptLayers : 0;
  float* const sums;
  float kept[kKept ? kKept : 1][4][4] = {}, kept_biases[kKept ? kKept : 1][2] = {};

  __device__ explicit GradientSums(const Task& task) : sums(task.sums + blockIdx.x * task.width) {}

  /// Adds dᵀ·h and dᵀ·1 over the rows of a tile: d is the gradient at the output of layer l, h its
  /// input. `first`: this is the block's first tile.
  __device__ __forceinline__ void add(const Block<T, kWidth>& block, int l, const T* d, const T* h,
                                      bool first) {
    const Layer& o = block.task.layers[l];
    const int d_stride = stride_of(o.out), h_stride = stride_of(o.in);
    WarpPart part;
    for (int unit = block.warp; part.take(unit, block.warps, o); unit += block.warps) {
      if constexpr (kKept > 0) {
#pragma unroll
        for (int s = 0; s < kKept; ++s) {
          if (s != l) continue;
          float ones[4] = {};
          across_rows<T, 4>(kept[s], ones, d, d_stride, h, h_stride, part.row, part.begin, part.end,
                            block.rows, part.begin == 0, block.lane);
          kept_biases[s][0] += ones[0], kept_biases[s][1] += ones[2];
        }
      } else {
        for (int begin = part.begin; begin < part.end; begin += 64) {
          float acc[8][4] = {}, ones[4] = {};
          across_rows<T, 8>(acc, ones, d, d_stride, h, h_stride, part.row, begin, part.end,
                            block.rows, begin == 0, block.lane);
          put(sums, acc, o, part.row, begin, part.end, !first, block.lane);
          if (begin == 0) put_bias(sums, ones[0], ones[2], o, part.row, !first, block.lane);
        }
      }
    }
  }
  /// Writes the sums that were kept in registers.
  __device__ __forceinline__ void finish(const Block<T, kWidth>& block) {
    if constexpr (kKept > 0) {
#pragma unroll
      for (int l = 0; l < kKept; ++l) {
        WarpPart part;
        if (!block.task.gradients || l >= block.task.count ||
            !part.take(block.warp, block.warps, block.task.layers[l]))
          continue;
        const Layer& o = block.task.layers[l];
        put(sums, kept[l], o, part.row, part.begin, part.end, false, block.lane);
        if (part.begin == 0)
          put_bias(sums, kept_biases[l][0], kept_biases[l][1], o, part.row, false, block.lane);
      }
    }
  }
};

/// One tile, taken through the layers and back. A thread has elements of two rows: `own`, and the
/// one eight below.
template <class T, int kWidth>
struct Tile {
  static constexpr int K = kWidth / 16;
  Block<T, kWidth>& block;
  const Task& task;
  const int x_at;
  const float by;  // the gradient of the loss, times Task::factor
  float& lost;     // this tile's loss is added
  const int own, last;
  const int64_t number;
  const int rows_left;                     // from `own` on, at most 16
  unsigned a[K][4] = {}, next[K][4] = {};  // operand and result of a product
  // For classes: the target, −1 beyond the rows; the row's sum of eˣ; the target's output.
  int target[2] = {-1, -1};
  LogSum total[2];
  float hit[2] = {0, 0};

  __device__ Tile(Block<T, kWidth>& b, int64_t of_all, float slope, float& loss)
      : block(b),
        task(b.task),
        x_at(b.rows_of(of_all)),
        by(slope),
        lost(loss),
        own(16 * b.warp + b.lane.g),
        last(b.task.count - 1),
        number(of_all),
        rows_left(static_cast<int>(std::min<int64_t>(task.rows - row(0), 16))) {}

  /// A row of the thread, of all rows.
  __device__ int64_t row(int h) const { return number * block.rows + own + 8 * h; }
  __device__ bool live(int h) const { return 8 * h < rows_left; }
  __device__ __forceinline__ void advance() {
#pragma unroll
    for (int k = 0; k < K; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) a[k][i] = next[k][i];
  }
  /// Calls f(q, h, i, column) for each element of multiply() in columns 32·j …
  template <class F>
  __device__ __forceinline__ void each_element(int j, bool both, const F& f) const {
    each_pair(both, [&](int q, int h) {
#pragma unroll
      for (int i = 0; i < 2; ++i) f(q, h, i, 32 * j + 8 * q + block.lane.t + i);
    });
  }

  __device__ __forceinline__ void load_x() {
    const int in = task.layers[0].in;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (16 * k >= padded(in)) break;
      load_matrices<false>(
          a[k], &block.shared[x_at + (16 * block.warp + block.lane.down8) * stride_of(in) + 16 * k +
                              block.lane.across8]);
    }
  }
  __device__ __forceinline__ void load_classes() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (!live(h)) continue;
      const int64_t wanted = reinterpret_cast<const int64_t*>(task.target)[row(h)];
      if (task.range.contains(wanted))
        target[h] = static_cast<int>(wanted);
      else if (block.lane.t == 0)
        task.range.report(wanted, row(h));
    }
  }

  // Beyond the last row and column of what the tile holds there are zeros, since a product of what
  // is infinite and of padding would be NaN, and reach every output of its row.
  /// Applies the activation to a hidden layer's outputs, for the next product and for backward.
  __device__ __forceinline__ void hidden(int l, int j, const float (&c)[4][4], bool both) {
    const Layer& o = task.layers[l];
    const int stride = stride_of(o.out);
    T* const outputs = block.shared + task.layers[l + 1].input_at + own * stride + block.lane.t;
    T* const inputs = block.shared + o.slope_at + own * stride + block.lane.t;
    each_activation<T>(next, j, c, both, stride, task.activation,
                       [&](auto t, int at, int h, int column, float u, float v) -> unsigned {
                         using Op = typename decltype(t)::type;
                         const int left = live(h) ? o.out - column - block.lane.t : 0;
                         const unsigned y =
                             pair_of<T>(left > 0 ? Op::f(u) : 0.f, left > 1 ? Op::f(v) : 0.f);
                         if (task.gradients) *reinterpret_cast<unsigned*>(outputs + at) = y;
                         if (Op::saves == Saves::Input && task.gradients)
                           *reinterpret_cast<unsigned*>(inputs + at) = pair_of<T>(u, v);
                         return y;
                       });
  }
  /// Adds a row's outputs to its ln Σ eˣ.
  __device__ __forceinline__ void measure(int j, const float (&c)[4][4], bool both) {
    const int out = task.layers[last].out;
    float top[2] = {total[0].top, total[1].top};
    each_element(j, both, [&](int q, int h, int i, int column) {
      if (column < out) top[h] = formula::Max::step(top[h], c[q][2 * h + i]);
    });
    total[0].rise(top[0]), total[1].rise(top[1]);
    each_element(j, both, [&](int q, int h, int i, int column) {
      if (column >= out) return;
      const float v = c[q][2 * h + i];
      if (top[h] != -std::numeric_limits<float>::infinity()) total[h].sum += exp(v - top[h]);
      if (column == target[h]) hit[h] = v;
    });
  }
  /// Adds the cross-entropy of the rows after measure(): the four lanes of a row join their sums.
  __device__ __forceinline__ void lose_classes() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int d = 1; d < 4; d *= 2) {
        total[h].join({__shfl_xor_sync(kWholeWarp, total[h].top, d),
                       __shfl_xor_sync(kWholeWarp, total[h].sum, d)});
        hit[h] += __shfl_xor_sync(kWholeWarp, hit[h], d);
      }
      if (target[h] >= 0 && block.lane.t == 0)
        lost += halftape::log(total[h].sum) - (hit[h] - total[h].top);
    }
  }
  /// The gradient of the loss at an output y. Adds the squared error if the target is no class.
  __device__ __forceinline__ float slope_at(float y, int h, int column) {
    if (task.classes) {
      if (target[h] < 0) return 0;
      return exp(y - total[h].top) / total[h].sum - (column == target[h] ? 1.f : 0.f);
    }
    const auto item = static_cast<int64_t>(element_size(task.target_dtype));
    const int64_t at = row(h) * task.layers[last].out + column;
    const float e = y - load_packed(task.target + at * item, task.target_dtype);
    lost += e * e;
    return e;
  }
  /// Compares the outputs with the targets: `next` becomes the gradient at the outputs.
  __device__ __forceinline__ void compare(int j, const float (&c)[4][4], bool both) {
    const Layer& o = task.layers[last];
    const int stride = stride_of(o.out);
    T* const slope = block.shared + o.slope_at + own * stride + block.lane.t;
    each_pair(both, [&](int q, int h) {
      float e[2] = {0, 0};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int column = 32 * j + 8 * q + block.lane.t + i;
        if (column < o.out && live(h)) e[i] = slope_at(c[q][2 * h + i], h, column);
      }
      const unsigned d = pair_of<T>(e[0] * by, e[1] * by);
      next[2 * j + q / 2][q % 2 * 2 + h] = d;
      if (task.gradients) *reinterpret_cast<unsigned*>(slope + 8 * h * stride + 32 * j + 8 * q) = d;
    });
  }

  /// Adds the tile's loss, and leaves the gradient at the outputs in `next`. The code has one
  /// product for all layers, because it is long. With classes the last layer's product is computed
  /// twice: for the sums of the rows, and for their gradients.
  __device__ __forceinline__ void forward() {
    load_x();
    if (task.classes) load_classes();
    bool measured = !task.classes;
    for (int l = 0;;) {
      const Layer& o = task.layers[l];
      multiply<false>(a, padded(o.in), block.weight_of(l), stride_of(o.in), padded(o.out),
                      block.biases + l * kWidth, block.lane,
                      [&](int j, const float(&c)[4][4], bool both) {
                        if (l < last)
                          hidden(l, j, c, both);
                        else if (!measured)
                          measure(j, c, both);
                        else
                          compare(j, c, both);
                      });
      if (l < last) {
        advance();
        ++l;
        continue;
      }
      if (measured) return;
      measured = true;
      lose_classes();
      if (!task.gradients) return;
    }
  }

  /// The gradient at the input of layer l > 0, through the activation before it.
  __device__ __forceinline__ void below(int l, int j, const float (&c)[4][4], bool both) {
    const int stride = stride_of(task.layers[l].in);
    const int first = own * stride + block.lane.t;
    T* const slopes = block.shared + task.layers[l - 1].slope_at + first;
    const T* const saved =
        task.saves_input ? slopes : block.shared + task.layers[l].input_at + first;
    each_activation<T>(next, j, c, both, stride, task.activation,
                       [&](auto t, int at, int h, int column, float u, float v) -> unsigned {
                         using Op = typename decltype(t)::type;
                         const unsigned s = *reinterpret_cast<const unsigned*>(saved + at);
                         const int left = live(h) ? task.layers[l].in - column - block.lane.t : 0;
                         const unsigned y = pair_of<T>(left > 0 ? Op::df(u, low_of<T>(s)) : 0.f,
                                                       left > 1 ? Op::df(v, high_of<T>(s)) : 0.f);
                         *reinterpret_cast<unsigned*>(slopes + at) = y;
                         return y;
                       });
  }
  __device__ __forceinline__ void put_dx(int j, const float (&c)[4][4], bool both) {
    const int in = task.layers[0].in;
    each_element(j, both, [&](int q, int h, int i, int column) {
      if (live(h) && column < in)
        reinterpret_cast<T*>(task.dx)[row(h) * in + column] = as<T>(c[q][2 * h + i]);
    });
  }
  /// Adds the tile's gradients of weights and biases, and writes that of x if it is wanted.
  __device__ __forceinline__ void backward(GradientSums<T, kWidth>& sums, bool first) {
    advance();
    for (int l = last; l >= 0; --l) {
      const Layer& o = task.layers[l];
      __syncthreads();  // all rows of the gradient are written
      sums.add(block, l, block.shared + o.slope_at, block.shared + (l == 0 ? x_at : o.input_at),
               first);
      if (l == 0 && !task.dx) return;
      multiply<true>(a, padded(o.out), block.weight_of(l), stride_of(o.in), padded(o.in), nullptr,
                     block.lane, [&](int j, const float(&c)[4][4], bool both) {
                       if (l == 0)
                         put_dx(j, c, both);
                       else
                         below(l, j, c, both);
                     });
      advance();
    }
  }
};

template <class T, int kWidth>
__device__ __forceinline__ void run_tiles(const Task& task) {
  if (task.first_bad && blockIdx.x == 0 && threadIdx.x == 0) *task.first_bad = kNone;
  Block<T, kWidth> block(task);
  GradientSums<T, kWidth> sums(task);
  const float by = (task.g ? *task.g : 1) * task.factor;
  float lost = 0;
  block.stage_layers();
  block.stage_rows(blockIdx.x, block.x_at);
  for (int64_t number = blockIdx.x; number * block.rows < task.rows; number += gridDim.x) {
    Tile<T, kWidth> tile(block, number, by, lost);
    tile.forward();
    if (task.gradients) tile.backward(sums, number == blockIdx.x);
  }
  sums.finish(block);

  for (int d = 1; d < kWarp; d *= 2) lost += __shfl_xor_sync(kWholeWarp, lost, d);
  float* const of_warps = block.biases + task.count * kWidth;
  if (threadIdx.x % kWarp == 0) of_warps[block.warp] = lost;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < block.warps; ++w) lost += of_warps[w];
  sums.sums[task.width - 1] = lost;
}

template <class T, int kWidth>
__global__ __launch_bounds__(2 * kMostRows, 1) void mlp_tiles(const __grid_constant__ Task task) {
  if constexpr (kMultiplies<T>) run_tiles<T, kWidth>(task);  // is_supported() lets no other T in
}

}  // namespace halftape::cuda
