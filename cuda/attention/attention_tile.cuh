// The steps of attention on a tile of scores: staging rows in shared memory, products of fragments,
// mask, and which weights are dropped. attention.cu and attention_grad.cu make kernels of them.
//
// A warp has 16 rows of scores in its registers. In the forward kernel and in that of dq they are
// queries, and the keys lie across; in that of dk and dv it is the other way round (kTurned).
#pragma once
#include <limits>
#include <optional>

#include "halftape/core/contract/backend.h"
#include "halftape/core/formula/philox.h"
#include "halftape/core/formula/reduce.h"
#include "halftape/cuda/vector/fragments.cuh"

namespace halftape::cuda {

inline constexpr int kAttentionRows = 64;                          // of a block: 16 for each warp
inline constexpr unsigned kAttentionThreads = 2 * kAttentionRows;  // of a block
inline constexpr unsigned kEveryWeight = 1u << 24;

/// An operand, (B, H, rows, width), or a mask. Strides are in bytes.
struct Operand {
  char* base;  // null: none
  int64_t batch, head, row, column;
  int64_t rows;
  int width;
  bool packed;  // eight elements of a row from a multiple of eight on can be moved at once
  Dtype dtype;
};

/// What a query's scores are compared with in the backward pass.
struct alignas(16) QueryStats {
  float largest, inverse;  // 1 / total
  float delta;             // Σ g·y
  float unused;
};

struct AttentionTask {
  Operand q, k, v, mask, y;
  Operand g, dq, dk, dv;
  int64_t heads;
  int64_t tiles;  // of 64 queries or keys; a block for each, batch and head
  float scale;
  bool causal;
  unsigned kept;       // a weight stays if its random number of 24 bits is below; kEveryWeight: all
  float inverse_kept;  // 1 / (1 − dropout)
  RandomKey key;
  float *largest, *total;  // (B, H, L)
  QueryStats* stats;       // (B, H, L)
};

/// The task without tiles and gradients, if the kernels serve it. attention.cu.
std::optional<AttentionTask> attention_task(const Attention& a);
Operand operand_of(const Array& a);
/// A kernel by dtype, float16 or bfloat16, and width, at most 64 or 128; and the bytes of shared
/// memory that a block takes.
struct AttentionKernels {
  void (*of[2][2])(AttentionTask);
  size_t shared[2];
};
/// Launches one, with a block for each 64 rows of x.
void launch_attention(const Array& x, const char* what, const AttentionKernels& kernels,
                      AttentionTask& task);

/// A block's batch, head and rows.
struct Place {
  int64_t number;  // of the head among those of all batches
  int64_t batch, head, first;
  int row;  // of the block's, the first of this warp
  __device__ explicit Place(const AttentionTask& a)
      : row(static_cast<int>(threadIdx.x) / kWarp * 16) {
    const Division tile(blockIdx.x, a.tiles), of_batch(tile.quotient, a.heads);
    number = tile.quotient, batch = of_batch.quotient, head = of_batch.rest;
    first = tile.rest * kAttentionRows;
  }
  __device__ char* in(const Operand& x) const { return x.base + batch * x.batch + head * x.head; }
};

/// Rows in shared memory lie this many elements apart, whatever their width.
template <int W>
inline constexpr int kStride = W + 8;

/// Eight elements of a row from `column` on, 0 behind the row's end.
template <class T>
__device__ __forceinline__ Pack<T> load_part(const Operand& x, const char* row, int column) {
  const char* const from = row + column * x.column;
  if (x.packed && column + kPack <= x.width) return *reinterpret_cast<const Pack<T>*>(from);
  Pack<T> p;
#pragma unroll
  for (int i = 0; i < kPack; ++i)
    p.v[i] =
        column + i < x.width ? *reinterpret_cast<const T*>(from + i * x.column) : T::from_bits(0);
  return p;
}

/// All threads of the block: copies kRows rows from `first` on, padded with zeros. They are there
/// after cp_async_wait() and a barrier.
template <class T, int W, int kRows>
__device__ __forceinline__ void stage_rows(T* to, const Operand& x, const char* head,
                                           int64_t first) {
  constexpr int across = W / kPack;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < kRows * across; i += kAttentionThreads) {
    const int row = i / across, column = i % across * kPack;
    if (column >= padded(x.width)) continue;
    auto* const place = reinterpret_cast<Pack<T>*>(to + row * kStride<W> + column);
    const char* const from = head + (first + row) * x.row;
    if (first + row >= x.rows)
      *place = Pack<T>{};
    else if (x.packed && column + kPack <= x.width)
      cp_async(place, from + column * x.column);
    else
      *place = load_part<T>(x, from, column);
  }
}

/// A block's tiles of k and v in shared memory: one in use, one on its way.
template <class T, int W, int kKeys>
struct KeyTiles {
  static constexpr int keys = kKeys, size = keys * kStride<W>;
  static constexpr size_t bytes = size_t{4} * size * sizeof(T);
  T* const shared = reinterpret_cast<T*>(dynamic_shared());
  int64_t count;

  __device__ __forceinline__ KeyTiles(const AttentionTask& a, const Place& place) {
    const int64_t seen = place.first + kAttentionRows;
    count = ((a.causal && seen < a.k.rows ? seen : a.k.rows) + keys - 1) / keys;
  }
  /// A tile's k; its v is `size` behind.
  __device__ __forceinline__ T* at(int64_t tile) const { return shared + tile % 2 * (2 * size); }
  __device__ __forceinline__ void stage(const AttentionTask& a, const Place& place,
                                        int64_t tile) const {
    stage_rows<T, W, keys>(at(tile), a.k, place.in(a.k), tile * keys);
    stage_rows<T, W, keys>(at(tile) + size, a.v, place.in(a.v), tile * keys);
  }
};

/// v of 64 keys in shared memory, and two tiles of queries, as KeyTiles has them. A block takes
/// 28,672 bytes, 64 wide, and 35,328 bytes, 128 wide.
template <class T, int W>
struct QueryTiles {
  static constexpr int queries = 2048 / W, size = queries * kStride<W>;
  static constexpr size_t bytes = (size_t{4} * queries + kAttentionRows) * kStride<W> * sizeof(T) +
                                  2 * queries * sizeof(QueryStats);
  static_assert(4 * queries >= kAttentionRows);  // k is staged there first
  T* const shared = reinterpret_cast<T*>(dynamic_shared());
  T* const v = shared + 4 * size;
  QueryStats* const stats = reinterpret_cast<QueryStats*>(v + kAttentionRows * kStride<W>);

  int64_t begin, end;  // the tiles whose queries see the keys

  __device__ __forceinline__ QueryTiles(const AttentionTask& a, const Place& place)
      : begin(a.causal ? place.first / queries : 0), end((a.q.rows + queries - 1) / queries) {}
  /// A tile's q; its g is `size` behind.
  __device__ __forceinline__ T* rows(int64_t tile) const { return shared + tile % 2 * (2 * size); }
  __device__ __forceinline__ QueryStats* stats_of(int64_t tile) const {
    return stats + tile % 2 * queries;
  }
  __device__ __forceinline__ void stage(const AttentionTask& a, const Place& place,
                                        int64_t tile) const {
    const int64_t first = tile * queries;
    stage_rows<T, W, queries>(rows(tile), a.q, place.in(a.q), first);
    stage_rows<T, W, queries>(rows(tile) + size, a.g, place.in(a.g), first);
    const auto i = static_cast<int>(threadIdx.x);
    if (i >= queries) return;
    // Queries behind the last one have weights of 0.
    if (first + i < a.q.rows)
      cp_async(stats_of(tile) + i, a.stats + place.number * a.q.rows + first + i);
    else
      stats_of(tile)[i] = {};
  }
};

/// Loads a warp's 16 rows, staged by all, as fragments.
template <class T, int W>
__device__ __forceinline__ void load_fragment(unsigned (&a)[4], const T* rows, int k, Lane lane) {
  load_matrices<false>(a, &rows[lane.down8 * kStride<W> + 16 * k + lane.across8]);
}
template <class T, int W>
__device__ __forceinline__ void load_fragments(unsigned (&a)[W / 16][4], const T* rows, int width,
                                               Lane lane) {
#pragma unroll
  for (int k = 0; k < W / 16; ++k)
    if (16 * k < width) load_fragment<T, W>(a[k], rows, k, lane);
}

/// c += a·w, a (16, depth) by w (depth, columns). fragment(k, a) sets the k-th fragment of a, of at
/// most K. kStored: w is stored as (depth, columns), else as (columns, depth).
template <class T, int W, bool kStored, int K, int N, class F>
__device__ __forceinline__ void add_product(float (&c)[N][4], int depth, const T* w, int columns,
                                            Lane lane, const F& fragment) {
#pragma unroll
  for (int k = 0; k < K; ++k) {
    if (16 * k >= depth) break;
    unsigned a[4];
    fragment(k, a);
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      if (8 * n >= columns) break;
      unsigned b[4];
      load_matrices<kStored>(
          b, kStored ? &w[(16 * k + lane.down8) * kStride<W> + 8 * n + lane.across8]
                     : &w[(8 * n + lane.right8) * kStride<W> + 16 * k + lane.below8]);
      multiply_add<T>(c[n], a, b[0], b[1]);
      multiply_add<T>(c[n + 1], a, b[2], b[3]);
    }
  }
}
template <int K>
__device__ __forceinline__ auto in_registers(const unsigned (&all)[K][4]) {
  return [&all](int k, unsigned(&a)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = all[k][i];
  };
}
/// Two d side by side, rounded, are an a.
template <class T, int N>
__device__ __forceinline__ auto rounded(const float (&d)[N][4]) {
  return [&d](int k, unsigned(&a)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      a[i] = pair_of<T>(d[2 * k + i / 2][i % 2 * 2], d[2 * k + i / 2][i % 2 * 2 + 1]);
  };
}

/// Calls f(n, r, i) for each of a thread's scores, c[n][2·r + i].
template <int N, class F>
__device__ __forceinline__ void each_score(const F& f) {
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int i = 0; i < 2; ++i) f(n, r, i);
}

/// The query and the key of a thread's first score in a tile.
template <bool kTurned>
struct Corner {
  int64_t query, key;
  __device__ Corner(int64_t row, int64_t column, Lane lane)
      : query(kTurned ? column + lane.t : row + lane.g),
        key(kTurned ? row + lane.g : column + lane.t) {}
  // Distances from there.
  __device__ static constexpr int down(int n, int r, int i) { return kTurned ? 8 * n + i : 8 * r; }
  __device__ static constexpr int right(int n, int r, int i) { return kTurned ? 8 * r : 8 * n + i; }
};

__device__ __forceinline__ int nearby(int64_t distance) {
  constexpr int64_t far = 1 << 20;
  return static_cast<int>(distance < -far ? -far : distance > far ? far : distance);
}

/// s ← scale·s + mask, −∞ where a key takes no part. Turned, the rows beyond the last query do not,
/// either: a key that is not finite would make them NaN, and they enter its gradient.
template <bool kTurned, int N>
__device__ __forceinline__ void mask_scores(float (&s)[N][4], const AttentionTask& a,
                                            const Place& place, Corner<kTurned> at) {
  constexpr float hidden = -std::numeric_limits<float>::infinity();
  each_score<N>([&](int n, int r, int i) { s[n][2 * r + i] *= a.scale; });
  const int queries = nearby(a.q.rows - at.query), keys = nearby(a.k.rows - at.key);
  if (a.mask.base) {
    const char* const first = place.in(a.mask) + at.query * a.mask.row + at.key * a.mask.column;
    const auto each = [&](const auto& f) {
      each_score<N>([&](int n, int r, int i) {
        const int down = at.down(n, r, i), right = at.right(n, r, i);
        if (down < queries && right < keys)
          f(s[n][2 * r + i], first + down * a.mask.row + right * a.mask.column);
      });
    };
    if (a.mask.dtype == Dtype::Bool)
      each([&](float& x, const char* m) { x = *reinterpret_cast<const bool*>(m) ? x : hidden; });
    else
      with_packed_type(a.mask.dtype, [&](auto t) {
        using M = typename decltype(t)::type;
        each([&](float& x, const char* m) { x += as<float>(*reinterpret_cast<const M*>(m)); });
      });
  }
  // Distances across the whole tile, from any thread's corner, are below 64.
  const int ahead = nearby(at.query - at.key);
  if (keys >= kAttentionRows && (!kTurned || queries >= kAttentionRows) &&
      (!a.causal || ahead >= kAttentionRows))
    return;
  each_score<N>([&](int n, int r, int i) {
    const int down = at.down(n, r, i), right = at.right(n, r, i);
    if (right >= keys || (kTurned && down >= queries) || (a.causal && right - down > ahead))
      s[n][2 * r + i] = hidden;
  });
}

/// Bit i: does the weight with the i-th number of this block of Philox stay?
__device__ __forceinline__ unsigned kept_of_block(const AttentionTask& a, const RandomKey& key,
                                                  uint64_t block) {
  const PhiloxBlock words = philox(key.seed, key.offset + block, 0);
  unsigned kept = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) kept |= (words.v[i] >> 8 < a.kept ? 1u : 0u) << i;
  return kept;
}

/// Which of a thread's scores keep their weights: bit 4·n + 2·r + i for c[n][2·r + i]. In loops,
/// since unrolled the code would be too long.
template <bool kTurned, int N>
__device__ __forceinline__ unsigned kept_weights(const AttentionTask& a, const Place& place,
                                                 Corner<kTurned> at, const RandomKey& key,
                                                 Lane lane) {
  if (a.kept == kEveryWeight) return ~0u;
  unsigned kept = 0;
  const int64_t first = (place.number * a.q.rows + at.query) * a.k.rows + at.key;
  if (a.k.rows % 4 != 0) {
    uint64_t held = ~uint64_t{0};
    unsigned of_block = 0;
#pragma unroll 1
    for (int bit = 0; bit < 4 * N; ++bit) {
      const int n = bit / 4, r = bit / 2 % 2, i = bit % 2;
      const auto number =
          static_cast<uint64_t>(first + at.down(n, r, i) * a.k.rows + at.right(n, r, i));
      if (held != number / 4) of_block = kept_of_block(a, key, number / 4);
      held = number / 4;
      kept |= (of_block >> number % 4 & 1) << bit;
    }
    return kept;
  }
  // The four keys of a block belong to neighbours, which take turns. Turned, these are four lanes
  // with a key each and two by two blocks; else two lanes with two keys each and two blocks.
  const int all = static_cast<int>(threadIdx.x) % kWarp, me = kTurned ? lane.g % 4 : all % 2;
  const int64_t mine =
      first + (kTurned ? me % 2 * a.k.rows + me / 2 * 8 - me : me * 8 * a.k.rows - me * 2);
#pragma unroll 1
  for (int n = 0; n < N; ++n) {
    const int64_t number = mine + (kTurned ? 8 * n * a.k.rows : 8 * n);
    const unsigned of_block = kept_of_block(a, key, static_cast<uint64_t>(number / 4));
    if constexpr (kTurned) {
#pragma unroll
      for (int j = 0; j < 4; ++j)
        kept |= (__shfl_sync(kWholeWarp, of_block, (all & ~12) | j << 2) >> me & 1) << (4 * n + j);
    } else {
#pragma unroll
      for (int r = 0; r < 2; ++r)
        kept |= (__shfl_sync(kWholeWarp, of_block, (all & ~1) | r) >> (2 * me) & 3)
                << (4 * n + 2 * r);
    }
  }
  return kept;
}

__device__ __forceinline__ RandomKey live_key(RandomKey key) {
  if (key.live) {
    key.seed += key.live->seed;
    key.offset += key.live->offset;
  }
  return key;
}

/// Writes a warp's 16 rows, c by `factor` of the row's half. `shared`: room for them that no other
/// warp uses.
template <class T, int W, int N>
__device__ __forceinline__ void put_rows(const Operand& y, const Place& place, T* shared,
                                         const float (&c)[N][4], const float (&factor)[2],
                                         Lane lane) {
  char* const head = place.in(y);
  const int64_t first = place.first + place.row;
  __syncwarp();
#pragma unroll
  for (int n = 0; n < N; ++n) {
    if (8 * n >= padded(y.width)) break;
#pragma unroll
    for (int r = 0; r < 2; ++r)
      *reinterpret_cast<unsigned*>(&shared[(lane.g + 8 * r) * kStride<W> + 8 * n + lane.t]) =
          pair_of<T>(c[n][2 * r] * factor[r], c[n][2 * r + 1] * factor[r]);
  }
  __syncwarp();
  constexpr int across = W / kPack;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) % kWarp; i < 16 * across; i += kWarp) {
    const int row = i / across, column = i % across * kPack;
    if (first + row >= y.rows || column >= y.width) continue;
    const Pack<T> p = *reinterpret_cast<const Pack<T>*>(&shared[row * kStride<W> + column]);
    char* const to = head + (first + row) * y.row + column * y.column;
    if (y.packed && column + kPack <= y.width) {
      *reinterpret_cast<Pack<T>*>(to) = p;
      continue;
    }
#pragma unroll
    for (int k = 0; k < kPack; ++k)
      if (column + k < y.width) *reinterpret_cast<T*>(to + k * y.column) = p.v[k];
  }
}

}  // namespace halftape::cuda
