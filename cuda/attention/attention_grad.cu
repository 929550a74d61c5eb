// The gradients of attention. The scores are computed again, tile by tile, once for dq, with 64
// queries in a block, and once for dk and dv, with 64 keys in a block, so that every sum has one
// owner and one order. After Dao 2023, "FlashAttention-2", arXiv:2307.08691, algorithm 2.
#include "halftape/cuda/attention/attention_tile.cuh"
#include "halftape/cuda/fused.h"

namespace halftape::cuda {
namespace {

constexpr int kPartsOfRow = 128 / kPack;

/// A row of y and g for each half warp.
template <class T>
__global__ void __launch_bounds__(kThreads)
    attention_stats(const __grid_constant__ AttentionTask a, int64_t rows) {
  const int column = static_cast<int>(threadIdx.x) % kPartsOfRow * kPack;
  // A warp goes on or ends as one.
  for (int64_t i = thread_number() / kPartsOfRow; i / 2 * 2 < rows;
       i += thread_count() / kPartsOfRow) {
    float delta = 0;
    if (i < rows && column < a.y.width) {
      const Division row(i, a.y.rows), of_batch(row.quotient, a.heads);
      const auto part = [&](const Operand& x) {
        return load_part<T>(
            x, x.base + of_batch.quotient * x.batch + of_batch.rest * x.head + row.rest * x.row,
            column);
      };
      const Pack<T> y = part(a.y), g = part(a.g);
      for (int k = 0; k < kPack; ++k) delta += as<float>(y.v[k]) * as<float>(g.v[k]);
    }
    for (int d = 1; d < kPartsOfRow; d *= 2) delta += __shfl_xor_sync(kWholeWarp, delta, d);
    if (i < rows && column == 0) a.stats[i] = {a.largest[i], 1 / a.total[i], delta, 0};
  }
}

/// The gradient of a score of weight p, with the gradient at that weight.
__device__ __forceinline__ float slope_of(float p, float g, bool kept, float delta,
                                          const AttentionTask& a) {
  return p * ((kept ? g * a.inverse_kept : 0) - delta);
}

// ---------------------------------------------------------------- dq

// A block takes 18,432 bytes of shared memory, 64 wide, and 34,816 bytes, 128 wide.
template <class T, int W>
using DqTiles = KeyTiles<T, W, 32>;

template <class T, int W>
__device__ __forceinline__ void run_dq(const AttentionTask& a) {
  constexpr int keys = DqTiles<T, W>::keys, N = keys / 8;
  const Lane lane;
  const Place place(a);
  const DqTiles<T, W> tiles(a, place);
  const RandomKey key = live_key(a.key);
  const int own = place.row * kStride<W>;

  static_assert(4 * keys >= 2 * kAttentionRows);  // q and g are staged there first
  unsigned q[W / 16][4], g[W / 16][4];
  T* const staged_g = tiles.shared + kAttentionRows * kStride<W>;
  stage_rows<T, W, kAttentionRows>(tiles.shared, a.q, place.in(a.q), place.first);
  stage_rows<T, W, kAttentionRows>(staged_g, a.g, place.in(a.g), place.first);
  cp_async_wait();
  __syncthreads();
  load_fragments<T, W>(q, tiles.shared + own, padded(a.q.width), lane);
  load_fragments<T, W>(g, staged_g + own, padded(a.v.width), lane);
  QueryStats stats[2] = {};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int64_t row = place.first + place.row + lane.g + 8 * r;
    if (row < a.q.rows) stats[r] = a.stats[place.number * a.q.rows + row];
  }
  __syncthreads();

  float acc[W / 8][4] = {};
  tiles.stage(a, place, 0);
  for (int64_t tile = 0; tile < tiles.count; ++tile) {
    cp_async_wait();
    __syncthreads();  // the tile is there, and nobody reads the other place any more
    if (tile + 1 < tiles.count) tiles.stage(a, place, tile + 1);
    const T* const k = tiles.at(tile);
    const Corner<false> corner(place.first + place.row, tile * keys, lane);
    const unsigned kept = kept_weights<false, N>(a, place, corner, key, lane);
    float p[N][4] = {}, slopes[N][4] = {};
    add_product<T, W, false, W / 16>(p, padded(a.q.width), k, keys, lane, in_registers(q));
    mask_scores(p, a, place, corner);
    add_product<T, W, false, W / 16>(slopes, padded(a.v.width), k + tiles.size, keys, lane,
                                     in_registers(g));
    each_score<N>([&](int n, int r, int i) {
      float& slope = slopes[n][2 * r + i];
      slope = slope_of(exp(p[n][2 * r + i] - stats[r].largest) * stats[r].inverse, slope,
                       (kept >> (4 * n + 2 * r + i) & 1) != 0, stats[r].delta, a);
    });
    add_product<T, W, true, keys / 16>(acc, keys, k, padded(a.q.width), lane, rounded<T>(slopes));
  }
  const float factor[2] = {a.scale, a.scale};
  put_rows<T, W>(a.dq, place, tiles.at(tiles.count) + own, acc, factor, lane);
}

template <class T, int W>
__global__ void __launch_bounds__(kAttentionThreads)
    attention_dq(const __grid_constant__ AttentionTask task) {
  if constexpr (kMultiplies<T>) run_dq<T, W>(task);
}

// ---------------------------------------------------------------- dk and dv

template <class T, int W>
__device__ __forceinline__ void run_dk_dv(const AttentionTask& a) {
  using Tiles = QueryTiles<T, W>;
  constexpr int queries = Tiles::queries, N = queries / 8;
  const Lane lane;
  const Place place(a);
  const Tiles tiles(a, place);
  const RandomKey key = live_key(a.key);
  const int own = place.row * kStride<W>;

  unsigned k[W / 16][4];
  stage_rows<T, W, kAttentionRows>(tiles.shared, a.k, place.in(a.k), place.first);
  stage_rows<T, W, kAttentionRows>(tiles.v, a.v, place.in(a.v), place.first);
  cp_async_wait();
  __syncthreads();
  load_fragments<T, W>(k, tiles.shared + own, padded(a.q.width), lane);
  __syncthreads();

  float dk[W / 8][4] = {}, dv[W / 8][4] = {};
  if (tiles.begin < tiles.end) tiles.stage(a, place, tiles.begin);
  for (int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
    cp_async_wait();
    __syncthreads();  // the tile is there, and nobody reads the other place any more
    if (tile + 1 < tiles.end) tiles.stage(a, place, tile + 1);
    const T *const q = tiles.rows(tile), *const g = q + Tiles::size;
    const QueryStats* const stats = tiles.stats_of(tile) + lane.t;
    const Corner<true> corner(place.first + place.row, tile * queries, lane);
    const unsigned kept = kept_weights<true, N>(a, place, corner, key, lane);
    const auto is_kept = [&](int n, int r, int i) {
      return (kept >> (4 * n + 2 * r + i) & 1) != 0;
    };
    float p[N][4] = {}, slopes[N][4] = {};
    add_product<T, W, false, W / 16>(p, padded(a.q.width), q, queries, lane, in_registers(k));
    mask_scores(p, a, place, corner);
    each_score<N>([&](int n, int r, int i) {
      const QueryStats& of = stats[8 * n + i];
      p[n][2 * r + i] = exp(p[n][2 * r + i] - of.largest) * of.inverse;
    });
    if (a.dk.base) {
      add_product<T, W, false, W / 16>(
          slopes, padded(a.v.width), g, queries, lane,
          [&](int i, unsigned(&v)[4]) { load_fragment<T, W>(v, tiles.v + own, i, lane); });
      each_score<N>([&](int n, int r, int i) {
        float& slope = slopes[n][2 * r + i];
        slope = slope_of(p[n][2 * r + i], slope, is_kept(n, r, i), stats[8 * n + i].delta, a);
      });
      add_product<T, W, true, queries / 16>(dk, queries, q, padded(a.q.width), lane,
                                            rounded<T>(slopes));
    }
    if (a.dv.base) {
      each_score<N>([&](int n, int r, int i) {
        if (!is_kept(n, r, i)) p[n][2 * r + i] = 0;
      });
      add_product<T, W, true, queries / 16>(dv, queries, g, padded(a.v.width), lane, rounded<T>(p));
    }
  }
  // No other warp reads this warp's rows of v.
  const float scale[2] = {a.scale, a.scale}, inverse[2] = {a.inverse_kept, a.inverse_kept};
  if (a.dk.base) put_rows<T, W>(a.dk, place, tiles.v + own, dk, scale, lane);
  if (a.dv.base) put_rows<T, W>(a.dv, place, tiles.v + own, dv, inverse, lane);
}

template <class T, int W>
__global__ void __launch_bounds__(kAttentionThreads)
    attention_dk_dv(const __grid_constant__ AttentionTask task) {
  if constexpr (kMultiplies<T>) run_dk_dv<T, W>(task);
}

}  // namespace

bool attention_grad_fused(const AttentionGrad& d) {
  const Attention& a = d.of;
  std::optional<AttentionTask> task = attention_task(a);
  if (!task) return false;
  const Shape rows{a.q.size(0), a.q.size(1), a.q.size(2)};
  const int64_t count = rows[0] * rows[1] * rows[2];
  const Array stats({count * static_cast<int64_t>(sizeof(QueryStats))}, kUInt8, a.q.device());
  task->stats = static_cast<QueryStats*>(stats.raw());
  task->g = operand_of(d.g);
  task->dq = operand_of(d.dq), task->dk = operand_of(d.dk), task->dv = operand_of(d.dv);
  launch_for(queue(a.q), count * kPartsOfRow, "attention stats",
             a.q.dtype() == kFloat16 ? attention_stats<Half> : attention_stats<BFloat16>, *task,
             count);
  if (d.dq.defined())
    launch_attention(a.q, "attention dq",
                     {{{attention_dq<Half, 64>, attention_dq<Half, 128>},
                       {attention_dq<BFloat16, 64>, attention_dq<BFloat16, 128>}},
                      {DqTiles<Half, 64>::bytes, DqTiles<Half, 128>::bytes}},
                     *task);
  if (d.dk.defined() || d.dv.defined())
    launch_attention(a.k, "attention dk dv",
                     {{{attention_dk_dv<Half, 64>, attention_dk_dv<Half, 128>},
                       {attention_dk_dv<BFloat16, 64>, attention_dk_dv<BFloat16, 128>}},
                      {QueryTiles<Half, 64>::bytes, QueryTiles<Half, 128>::bytes}},
                     *task);
  return true;
}

}  // namespace halftape::cuda
