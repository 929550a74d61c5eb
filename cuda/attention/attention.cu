// Attention, without its scores in memory: a block takes 64 queries through the keys, tile by tile.
// Each tile raises the largest score so far, and what was summed up before is scaled down to it.
// After Dao 2023, "FlashAttention-2", arXiv:2307.08691, algorithm 1.
#include <climits>

#include "halftape/cuda/attention/attention_tile.cuh"
#include "halftape/cuda/fused.h"

namespace halftape::cuda {
namespace {

/// Running softmax of the two rows of a thread, which share them with three neighbours.
struct RunningSoftmax {
  float top[2] = {-std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()};
  float sum[2] = {0, 0};  // of this thread's columns

  /// s ← e^(s − top), with `top` raised to the tile's largest; earlier sums are scaled to it. As
  /// long as all scores are −∞ the sums are 0.
  template <int N, int M>
  __device__ __forceinline__ void add(float (&s)[N][4], float (&acc)[M][4]) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float next = top[r];
#pragma unroll
      for (int n = 0; n < N; ++n)
        next = formula::Max::step(formula::Max::step(next, s[n][2 * r]), s[n][2 * r + 1]);
#pragma unroll
      for (int d = 1; d < 4; d *= 2)
        next = formula::Max::step(next, __shfl_xor_sync(kWholeWarp, next, d));
      const float base = next == -std::numeric_limits<float>::infinity() ? 0 : next;
      const float by = exp(top[r] - base);
      top[r] = next;
      sum[r] *= by;
#pragma unroll
      for (int m = 0; m < M; ++m) acc[m][2 * r] *= by, acc[m][2 * r + 1] *= by;
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i) sum[r] += s[n][2 * r + i] = exp(s[n][2 * r + i] - base);
    }
  }
  /// Joins the neighbours. If no score is larger than −∞, then a query with a mask sees no key, and
  /// one without has no softmax.
  __device__ __forceinline__ void finish(bool masked) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int d = 1; d < 4; d *= 2) sum[r] += __shfl_xor_sync(kWholeWarp, sum[r], d);
      if (top[r] != -std::numeric_limits<float>::infinity()) continue;
      sum[r] = masked ? 1 : std::numeric_limits<float>::quiet_NaN();
      if (masked) top[r] = 0;
    }
  }
};

// A block takes 36,864 bytes of shared memory, 64 wide, and 34,816 bytes, 128 wide.
template <class T, int W>
using Tiles = KeyTiles<T, W, 4096 / W>;

template <class T, int W>
__device__ __forceinline__ void attend(const AttentionTask& a) {
  constexpr int keys = Tiles<T, W>::keys, N = keys / 8;
  const Lane lane;
  const Place place(a);
  const Tiles<T, W> tiles(a, place);
  const RandomKey key = live_key(a.key);

  unsigned q[W / 16][4];
  stage_rows<T, W, kAttentionRows>(tiles.at(1), a.q, place.in(a.q), place.first);
  tiles.stage(a, place, 0);
  cp_async_wait();
  __syncthreads();
  load_fragments<T, W>(q, tiles.at(1) + place.row * kStride<W>, padded(a.q.width), lane);

  RunningSoftmax softmax;
  float acc[W / 8][4] = {};
  for (int64_t tile = 0; tile < tiles.count; ++tile) {
    cp_async_wait();
    __syncthreads();  // the tile is there, and nobody reads the other place any more
    if (tile + 1 < tiles.count) tiles.stage(a, place, tile + 1);
    const T* const k = tiles.at(tile);
    const Corner<false> corner(place.first + place.row, tile * keys, lane);
    float s[N][4] = {};
    add_product<T, W, false, W / 16>(s, padded(a.q.width), k, keys, lane, in_registers(q));
    mask_scores(s, a, place, corner);
    softmax.add(s, acc);
    const unsigned kept = kept_weights<false, N>(a, place, corner, key, lane);
    each_score<N>([&](int n, int r, int i) {
      if (!(kept >> (4 * n + 2 * r + i) & 1)) s[n][2 * r + i] = 0;
    });
    add_product<T, W, true, keys / 16>(acc, keys, k + tiles.size, padded(a.v.width), lane,
                                       rounded<T>(s));
  }

  softmax.finish(a.mask.base != nullptr);
  float factor[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    factor[r] = a.inverse_kept / softmax.sum[r];
    const int64_t row = place.first + place.row + lane.g + 8 * r;
    if (lane.t != 0 || row >= a.q.rows) continue;
    a.largest[place.number * a.q.rows + row] = softmax.top[r];
    a.total[place.number * a.q.rows + row] = softmax.sum[r];
  }
  put_rows<T, W>(a.y, place, tiles.at(tiles.count) + place.row * kStride<W>, acc, factor, lane);
}

template <class T, int W>
__global__ void __launch_bounds__(kAttentionThreads)
    attention(const __grid_constant__ AttentionTask task) {
  if constexpr (kMultiplies<T>) attend<T, W>(task);  // attention_task() lets no other T in
}

}  // namespace

// ---------------------------------------------------------------- what is launched

Operand operand_of(const Array& a) {
  Operand o{};
  if (!a.defined()) return o;
  const auto item = static_cast<int64_t>(element_size(a.dtype()));
  o.base = static_cast<char*>(a.raw());
  const Dims& strides = a.strides();
  o.batch = strides[0] * item, o.head = strides[1] * item, o.row = strides[2] * item;
  o.column = strides[3] * item;
  o.rows = a.size(2), o.width = static_cast<int>(a.size(3)), o.dtype = a.dtype();
  o.packed = o.column == item && is_aligned(o.base);
  for (int d = 0; d < 3; ++d)
    o.packed = o.packed && (a.size(d) == 1 || strides[d] * item % 16 == 0);
  return o;
}

std::optional<AttentionTask> attention_task(const Attention& a) {
  const Dtype dtype = a.q.dtype();
  if (!is_16bit(dtype) || a.q.size(3) > 128 || a.v.size(3) > 128) return {};
  // Older GPUs do not multiply bfloat16.
  if (dtype == kBFloat16 && Context::of(a.q).properties().major < 8) return {};
  if (a.mask.defined() && a.mask.dtype() != kBool && !packs(a.mask.dtype())) return {};
  const int64_t longest = std::max(a.q.size(2), a.k.size(2));
  if (a.q.size(0) * a.q.size(1) > INT_MAX / (longest / kAttentionRows + 1)) return {};
  AttentionTask task{};
  task.q = operand_of(a.q), task.k = operand_of(a.k), task.v = operand_of(a.v);
  task.mask = operand_of(a.mask), task.y = operand_of(a.y);
  task.heads = a.q.size(1);
  task.scale = static_cast<float>(a.scale);
  task.causal = a.causal;
  // u·2^-24 < 1 − dropout, as random() compares, for whole numbers u.
  task.kept = static_cast<unsigned>(std::ceil(std::ldexp(1 - a.dropout, 24)));
  task.inverse_kept = static_cast<float>(1 / (1 - a.dropout));
  task.key = a.key;
  task.largest = a.largest.data<float>(), task.total = a.total.data<float>();
  return task;
}

void launch_attention(const Array& x, const char* what, const AttentionKernels& kernels,
                      AttentionTask& task) {
  const bool wide = task.q.width > 64 || task.v.width > 64;
  task.tiles = (x.size(2) + kAttentionRows - 1) / kAttentionRows;
  const int64_t blocks = x.size(0) * x.size(1) * task.tiles;
  launch(queue(x), what, kernels.of[x.dtype() == kBFloat16][wide], static_cast<unsigned>(blocks),
         kAttentionThreads, kernels.shared[wide], task);
}

bool attention_fused(const Attention& a) {
  std::optional<AttentionTask> task = attention_task(a);
  if (!task) return false;
  launch_attention(a.q, "attention",
                   {{{attention<Half, 64>, attention<Half, 128>},
                     {attention<BFloat16, 64>, attention<BFloat16, 128>}},
                    {Tiles<Half, 64>::bytes, Tiles<Half, 128>::bytes}},
                   *task);
  return true;
}

}  // namespace halftape::cuda
