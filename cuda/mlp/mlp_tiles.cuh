// The kernel that takes a small MLP's rows through the layers and back, tile by tile. Each warp has
// 16 rows in its registers: the outputs of one product are the operand of the next. What all rows
// of a tile give to a weight's gradient is a product across them, from shared memory.
//
// Of few, narrow layers the gradients stay in registers from tile to tile (kKept); others are added
// to the block's own sums in memory. After Müller 2021, "Real-time neural radiance caching",
// arXiv:2106.12372, section 4, which keeps the activations on the chip in the same way.
#pragma once
#include "halftape/cuda/mlp/mlp_tile.cuh"

namespace halftape::cuda {

template <class T, int kWidth>
__global__ __launch_bounds__(2 * kMostRows, 1) void mlp_tiles(const __grid_constant__ Task task) {
  constexpr int K = kWidth / 16, kKept = kWidth <= kKeptWidth ? kKeptLayers : 0;
  T* const shared = reinterpret_cast<T*>(dynamic_shared());
  float* const biases = reinterpret_cast<float*>(shared + task.biases_at);
  const Lane lane;
  const int warp = static_cast<int>(threadIdx.x) / kWarp,
            warps = static_cast<int>(blockDim.x) / kWarp, tile = 16 * warps;
  const int last = task.count - 1;
  if (task.first_bad && blockIdx.x == 0 && threadIdx.x == 0) *task.first_bad = kNone;

  const auto stage_weight = [&](int l) {
    const Layer& o = task.layers[l];
    stage(shared + o.weight_at, o.weight, o.weight_dtype, 0, o.out, padded(o.out), o.in);
  };
  // A tile's x on its way into shared memory, and its targets into the cache.
  const auto stage_rows = [&](int64_t number, int at) {
    stage(shared + at, task.x, task.x_dtype, number * tile, task.rows, tile, task.layers[0].in);
    const int64_t begin = number * tile * task.target_bytes,
                  end = (number + 1) * tile < task.rows ? begin + tile * task.target_bytes
                                                        : task.rows * task.target_bytes;
    for (int64_t i = begin + 128 * int64_t{threadIdx.x}; i < end; i += 128 * int64_t{blockDim.x})
      prefetch(task.target + i);
  };
  for (int l = 0; l < task.count; ++l) {
    const Layer& o = task.layers[l];
    for (int i = static_cast<int>(threadIdx.x); i < kWidth; i += static_cast<int>(blockDim.x)) {
      float b = 0;
      if (o.bias && i < o.out)
        b = load_real(o.bias + i * static_cast<int>(element_size(o.bias_dtype)), o.bias_dtype);
      biases[l * kWidth + i] = as<float>(as<T>(b));
    }
    if (task.resident) stage_weight(l);
  }
  int held = -1;  // whose weight is there, when there is one at a time
  const auto weight_of = [&](int l) {
    if (!task.resident && held != l) {
      __syncthreads();
      stage_weight(l);
      cp_async_wait();
      __syncthreads();
      held = l;
    }
    return shared + task.layers[l].weight_at;
  };

  float kept[kKept ? kKept : 1][4][4] = {}, kept_biases[kKept ? kKept : 1][2] = {};
  float* const sums = task.sums + blockIdx.x * task.width;
  const float by = (task.g ? *task.g : 1) * task.factor;
  float lost = 0;
  int x_at = task.layers[0].input_at, other_at = task.other_input_at;
  stage_rows(blockIdx.x, x_at);
  for (int64_t number = blockIdx.x; number * tile < task.rows; number += gridDim.x) {
    cp_async_wait();
    __syncthreads();  // this tile's x is there, and nobody reads the last one's any more
    const int64_t next_number = number + gridDim.x;
    if (next_number * tile < task.rows) stage_rows(next_number, other_at);
    const T* const x = shared + x_at;
    x_at = std::exchange(other_at, x_at);
    const int own = 16 * warp + lane.g;
    const int64_t row0 = number * tile + own;
    const auto live = [&](int h) { return row0 + 8 * h < task.rows; };

    // Forward: a is what a layer reads, then what it gives.
    unsigned a[K][4] = {}, next[K][4] = {};
    const auto advance = [&] {
#pragma unroll
      for (int k = 0; k < K; ++k)
#pragma unroll
        for (int i = 0; i < 4; ++i) a[k][i] = next[k][i];
    };
    {
      const int in = task.layers[0].in;
#pragma unroll
      for (int k = 0; k < K; ++k) {
        if (16 * k >= padded(in)) break;
        load_matrices<false>(a[k],
                             &x[(16 * warp + lane.down8) * stride_of(in) + 16 * k + lane.across8]);
      }
    }
    const int out = task.layers[last].out;
    int64_t target[2] = {-1, -1};  // classes; −1: of no row
    LogSum total[2];
    float hit[2] = {0, 0};  // the target's output
    if (task.classes) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (!live(h)) continue;
        target[h] = reinterpret_cast<const int64_t*>(task.target)[row0 + 8 * h];
        if (task.range.holds(target[h])) continue;
        if (lane.t == 0) task.range.report(target[h], row0 + 8 * h);
        target[h] = -1;
      }
    }
    // Of classes the outputs are computed twice: for the sums of their rows, and for what follows.
    bool measured = !task.classes;
    for (int l = 0;;) {
      const Layer& o = task.layers[l];
      const int stride = stride_of(o.out);
      const auto hidden = [&](int j, const float(&c)[4][4], bool both) {
        T* const outputs = shared + task.layers[l + 1].input_at + own * stride + lane.t;
        T* const inputs = shared + o.slope_at + own * stride + lane.t;
        each_activation<T>(next, j, c, both, stride, task.activation,
                           [&](auto t, int at, int h, float u, float v) -> unsigned {
                             using Op = typename decltype(t)::type;
                             const unsigned y =
                                 live(h) ? pair_of<T>(Op::f(u), Op::f(v)) : 0;  // 0: of no row
                             if (task.gradients) *reinterpret_cast<unsigned*>(outputs + at) = y;
                             if (Op::saves == Saves::Input && task.gradients)
                               *reinterpret_cast<unsigned*>(inputs + at) = pair_of<T>(u, v);
                             return y;
                           });
      };
      const auto measure = [&](int j, const float(&c)[4][4], bool both) {
        const auto each = [&](const auto& f) {
          each_pair(both, [&](int q, int h) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              const int number_of = 32 * j + 8 * q + lane.t + i;
              if (number_of < out) f(number_of, h, c[q][2 * h + i]);
            }
          });
        };
        float top[2] = {total[0].top, total[1].top};
        each([&](int, int h, float v) { top[h] = formula::Max::step(top[h], v); });
        total[0].rise(top[0]), total[1].rise(top[1]);
        each([&](int i, int h, float v) {
          if (top[h] != -std::numeric_limits<float>::infinity()) total[h].sum += exp(v - top[h]);
          if (i == target[h]) hit[h] = v;
        });
      };
      const auto compare = [&](int j, const float(&c)[4][4], bool both) {
        const auto item = static_cast<int64_t>(element_size(task.target_dtype));
        T* const slope = shared + o.slope_at + own * stride + lane.t;
        each_pair(both, [&](int q, int h) {
          float e[2] = {0, 0};
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int number_of = 32 * j + 8 * q + lane.t + i;
            const float y = c[q][2 * h + i];
            if (number_of >= out || !live(h)) continue;
            if (task.classes) {
              if (target[h] >= 0)
                e[i] = exp(y - total[h].top) / total[h].sum - (number_of == target[h] ? 1.f : 0.f);
            } else {
              const int64_t at = (row0 + 8 * h) * out + number_of;
              e[i] = y - load_real(task.target + at * item, task.target_dtype);
              lost += e[i] * e[i];
            }
          }
          const unsigned d = pair_of<T>(e[0] * by, e[1] * by);
          next[2 * j + q / 2][q % 2 * 2 + h] = d;
          if (task.gradients)
            *reinterpret_cast<unsigned*>(slope + 8 * h * stride + 32 * j + 8 * q) = d;
        });
      };
      multiply<false>(a, padded(o.in), weight_of(l), stride_of(o.in), padded(o.out),
                      biases + l * kWidth, lane, [&](int j, const float(&c)[4][4], bool both) {
                        if (l < last)
                          hidden(j, c, both);
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
      if (measured) break;
      measured = true;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int d = 1; d < 4; d *= 2) {  // the four lanes of a row
          total[h].join({__shfl_xor_sync(kWholeWarp, total[h].top, d),
                         __shfl_xor_sync(kWholeWarp, total[h].sum, d)});
          hit[h] += __shfl_xor_sync(kWholeWarp, hit[h], d);
        }
        if (target[h] >= 0 && lane.t == 0)
          lost += halftape::log(total[h].sum) - (hit[h] - total[h].top);
      }
      if (!task.gradients) break;
    }
    if (!task.gradients) continue;

    // Backward: a is the gradient at what a layer gives.
    advance();
    for (int l = last; l >= 0; --l) {
      const Layer& o = task.layers[l];
      const T* const d = shared + o.slope_at;
      const T* const h_in = l == 0 ? x : shared + o.input_at;
      __syncthreads();  // all rows of the gradient are there
      WarpPart part;
      for (int unit = warp; part.take(unit, warps, o); unit += warps) {
        if constexpr (kKept > 0) {
#pragma unroll
          for (int s = 0; s < kKept; ++s) {
            if (s != l) continue;
            float ones[4] = {};
            across_rows<T, 4>(kept[s], ones, d, stride_of(o.out), h_in, stride_of(o.in), part.row,
                              part.begin, part.end, tile, part.begin == 0, lane);
            kept_biases[s][0] += ones[0], kept_biases[s][1] += ones[2];
          }
        } else {
          const bool add = number != blockIdx.x;
          for (int begin = part.begin; begin < part.end; begin += 64) {
            float acc[8][4] = {}, ones[4] = {};
            across_rows<T, 8>(acc, ones, d, stride_of(o.out), h_in, stride_of(o.in), part.row,
                              begin, part.end, tile, begin == 0, lane);
            put(sums, acc, o, part.row, begin, part.end, add, lane);
            if (begin == 0) put_bias(sums, ones[0], ones[2], o, part.row, add, lane);
          }
        }
      }
      if (l == 0 && !task.dx) break;
      const int stride = stride_of(o.in);
      T* const below = shared + (l == 0 ? 0 : task.layers[l - 1].slope_at) + own * stride + lane.t;
      const T* const saved = task.saves_input ? below : shared + o.input_at + own * stride + lane.t;
      multiply<true>(
          a, padded(o.out), weight_of(l), stride, padded(o.in), nullptr, lane,
          [&](int j, const float(&c)[4][4], bool both) {
            if (l == 0) {
              each_pair(both, [&](int q, int h) {
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                  const int column = 32 * j + 8 * q + lane.t + i;
                  if (!live(h) || column >= o.in) continue;
                  reinterpret_cast<T*>(task.dx)[(row0 + 8 * h) * o.in + column] =
                      as<T>(c[q][2 * h + i]);
                }
              });
              return;
            }
            each_activation<T>(
                next, j, c, both, stride, task.activation,
                [&](auto t, int at, int h, float u, float v) -> unsigned {
                  using Op = typename decltype(t)::type;
                  const unsigned s = *reinterpret_cast<const unsigned*>(saved + at);
                  const unsigned y =
                      live(h) ? pair_of<T>(Op::df(u, low_of<T>(s)), Op::df(v, high_of<T>(s))) : 0;
                  *reinterpret_cast<unsigned*>(below + at) = y;
                  return y;
                });
          });
      advance();
    }
  }

  if constexpr (kKept > 0) {
#pragma unroll
    for (int l = 0; l < kKept; ++l) {
      WarpPart part;
      if (!task.gradients || l > last || !part.take(warp, warps, task.layers[l])) continue;
      put(sums, kept[l], task.layers[l], part.row, part.begin, part.end, false, lane);
      if (part.begin == 0)
        put_bias(sums, kept_biases[l][0], kept_biases[l][1], task.layers[l], part.row, false, lane);
    }
  }
  for (int d = 1; d < kWarp; d *= 2) lost += __shfl_xor_sync(kWholeWarp, lost, d);
  float* const of_warps = biases + task.count * kWidth;
  if (threadIdx.x % kWarp == 0) of_warps[warp] = lost;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < warps; ++w) lost += of_warps[w];
  sums[task.width - 1] = lost;
}

}  // namespace halftape::cuda
