// Rows along the last dimension, one for each team of threads. A warp keeps up to 1024 elements in
// registers; a block reads a longer row again for each pass.
#pragma once
#include "halftape/core/formula/reduce.h"

#include "halftape/cuda/vector/runs.cuh"

namespace halftape::cuda {

inline constexpr unsigned kRowThreads = 512;  // of a block with one row

/// N operands as rows. Kernels write the first.
template <int N>
struct Rows {
  Layout<N> starts;
  int64_t length;
  std::array<RunLayout, N> along;
};

/// The threads that work on one row. all() gives each of them the values of all, joined.
struct Warp {
  static constexpr int kSize = kWarp;
  static constexpr unsigned kBlock = kThreads;
  template <class Op, class S>
  __device__ static S all(S x) {
    return __shfl_sync(kWholeWarp, join_lanes<Op>(x), 0);
  }
};
struct Block {
  static constexpr int kSize = kRowThreads;
  static constexpr unsigned kBlock = kRowThreads;
  template <class Op, class S>
  __device__ static S all(S x) {
    __shared__ S of_warps[kWarp];
    const int lane = threadIdx.x % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
    x = join_lanes<Op>(x);
    if (lane == 0) of_warps[warp] = x;
    __syncthreads();
    x = lane < kSize / kWarp ? of_warps[lane] : Op::template start<S>();
    __syncthreads();  // before somebody writes the next
    return __shfl_sync(kWholeWarp, join_lanes<Op>(x), 0);
  }
};

/// The number of runs that a thread keeps, if a row has `runs` for it. Doubles would take more
/// registers than there are: they are read again.
template <class S>
constexpr int held(int runs) {
  return std::is_same_v<S, double> ? 0 : runs;
}

/// This thread's runs of a row's inputs, kept in registers; with kHeld = 0 read again each time.
template <class S, class Team, int N, int kHeld>
struct Inputs {
  using Runs = S[N - 1][kPack];
  const Rows<N>& a;
  char* const (&at)[N];  // the beginning of the row
  S rest;                // beyond its end
  Runs runs[kHeld ? kHeld : 1];

  __device__ Inputs(const Rows<N>& rows, char* const (&row)[N], S beyond)
      : a(rows), at(row), rest(beyond) {
    unrolled<kHeld>([&](int r) { fetch(runs[r], first(r)); });
  }
  __device__ static int64_t first(int64_t r) {
    return (threadIdx.x % Team::kSize + r * Team::kSize) * kPack;
  }
  __device__ void fetch(Runs& to, int64_t i) const {
    unrolled<N - 1>([&](int k) {
      const RunLayout& along = a.along[static_cast<size_t>(k) + 1];
      load_run(to[k], at[k + 1] + i * along.step, along, a.length - i, rest);
    });
  }
  /// Calls f(a run of each input, index of its first element) for all runs.
  template <class F>
  __device__ void each(F&& f) {
    if constexpr (kHeld > 0) {
      unrolled<kHeld>([&](int r) { f(runs[r], first(r)); });
    } else {
      for (int64_t r = 0; r * Team::kSize * kPack < a.length; ++r) {
        fetch(runs[0], first(r));
        f(runs[0], first(r));
      }
    }
  }
  __device__ void write(const S (&run)[kPack], int64_t i) const {
    store_run(run, at[0] + i * a.along[0].step, a.along[0], a.length - i);
  }
};

/// Calls f(row, addresses) for each row of this team.
template <class Team, int N, class F>
__device__ void for_rows(const Rows<N>& a, F&& f) {
  for (int64_t row = thread_number() / Team::kSize; row < a.starts.numel;
       row += thread_count() / Team::kSize) {
    char* at[N];
    a.starts.locate(row, at);
    f(row, at);
  }
}

template <int N, class Argument>
using RowKernel = void (*)(Rows<N>, Argument);

/// Launches the kernel for one run in each thread of a warp, for four, or for longer rows.
template <int N, class Argument>
void launch_rows(const char* name, const std::array<Array, N>& arrays,
                 const std::type_identity_t<Argument>& argument,
                 const std::array<RowKernel<N, Argument>, 3>& kernels) {
  if (arrays[0].numel() == 0) return;
  const Queue q = queue(arrays[0]);
  const int last = arrays[0].dim() - 1;
  const int64_t length = last < 0 ? 1 : arrays[0].size(last);
  std::array<Array, N> starts = arrays;
  std::array<const Array*, N> all;
  for (size_t k = 0; k < N; ++k) {
    if (last >= 0) starts[k] = arrays[k].select(last, 0);
    all[k] = &starts[k];
  }
  const Layout<N> layout(all);
  const auto along = [&]<size_t... k>(std::index_sequence<k...>) {
    return std::array{
        RunLayout(layout, static_cast<int>(k), last < 0 ? 1 : arrays[k].strides()[last])...};
  }
  (std::make_index_sequence<N>());
  const Rows<N> rows{layout, length, along};
  const int64_t runs = (length + kPack - 1) / kPack;
  if (runs <= 4 * kWarp) {
    launch(q, name, kernels[runs <= kWarp ? 0 : 1], blocks_for(q, layout.numel * kWarp), kThreads,
           0, rows, argument);
  } else {
    const int64_t most = int64_t{4} * q.context.multiprocessors();
    launch(q, name, kernels[2], dim3(static_cast<unsigned>(std::min(layout.numel, most))),
           kRowThreads, 0, rows, argument);
  }
}

/// Calls f(Type<S>{}) with the type to compute rows of such an array in.
template <class F>
void in_its_precision(const Array& rows, F&& f) {
  if (rows.dtype() == kFloat64)
    f(Type<double>{});
  else
    f(Type<float>{});
}

}  // namespace halftape::cuda
