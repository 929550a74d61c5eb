// Softmax along the last dimension: statistics in float (double). A warp keeps a row of up to 1024
// elements in registers; a longer one is read by a block as often as it is needed.
#include <limits>

#include "halftape/core/formula/reduce.h"

#include "halftape/cuda/kernels.h"
#include "halftape/cuda/map.cuh"
#include "halftape/cuda/runs.cuh"

namespace halftape::cuda {
namespace {

constexpr unsigned kRowThreads = 512;  // of a block that works on one row

/// N operands as rows; the first is written.
template <int N>
struct Rows {
  Layout<N> starts;
  int64_t length;
  std::array<Along, N> along;
};

/// The threads that work on one row. all(): every one of them gets what they hold together.
struct Warp {
  static constexpr int kSize = kWarp;
  template <class Op, class S>
  __device__ static S all(S x) {
    return __shfl_sync(kWholeWarp, join_lanes<Op>(x), 0);
  }
};
struct Block {
  static constexpr int kSize = kRowThreads;
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

/// This thread's runs of a row's inputs: kept in registers, or, with kHeld = 0, read again each
/// time.
template <class S, class Team, int N, int kHeld>
struct Inputs {
  using Runs = S[N - 1][kPack];
  const Rows<N>& a;
  char* const (&at)[N];  // where the row begins
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
      const Along& along = a.along[static_cast<size_t>(k) + 1];
      load_run(to[k], at[k + 1] + i * along.step, along, a.length - i, rest);
    });
  }
  /// f(runs of each input, their first element's number), again and again.
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

/// f(addresses) for each row that this team is given.
template <class Team, int N, class F>
__device__ void for_rows(const Rows<N>& a, F&& f) {
  for (int64_t row = thread_number() / Team::kSize; row < a.starts.numel;
       row += thread_count() / Team::kSize) {
    char* at[N];
    a.starts.locate(row, at);
    f(at);
  }
}

template <class S, class Team, int kHeld>
__global__ void softmax_rows(const __grid_constant__ Rows<2> a, bool log) {
  for_rows<Team>(a, [&](char* const(&at)[2]) {
    constexpr S lowest = -std::numeric_limits<S>::infinity();  // adds e^−∞ = 0
    Inputs<S, Team, 2, kHeld> in(a, at, lowest);
    S top = lowest;
    in.each([&](S(&x)[1][kPack], int64_t) {
      unrolled<kPack>([&](int i) { top = formula::Max::step(top, x[0][i]); });
    });
    top = Team::template all<formula::Max>(top);
    S total = 0;
    in.each([&](S(&x)[1][kPack], int64_t) {
      unrolled<kPack>([&](int i) {
        const S e = exp(x[0][i] - top);
        total += e;
        if (kHeld > 0 && !log) x[0][i] = e;
      });
    });
    total = Team::template all<formula::Sum>(total);
    const S shift = log ? halftape::log(total) : S(0);
    in.each([&](S(&x)[1][kPack], int64_t first) {
      unrolled<kPack>([&](int i) {
        x[0][i] = log         ? (x[0][i] - top) - shift
                  : kHeld > 0 ? x[0][i] / total
                              : exp(x[0][i] - top) / total;
      });
      in.write(x[0], first);
    });
  });
}

template <class S, class Team, int kHeld>
__global__ void softmax_grad_rows(const __grid_constant__ Rows<3> a, bool log) {
  for_rows<Team>(a, [&](char* const(&at)[3]) {
    Inputs<S, Team, 3, kHeld> in(a, at, S(0));
    S total = 0;
    in.each([&](S(&x)[2][kPack], int64_t) {
      const auto &g = x[0], &y = x[1];
      unrolled<kPack>([&](int i) { total += log ? g[i] : g[i] * y[i]; });
    });
    total = Team::template all<formula::Sum>(total);
    in.each([&](S(&x)[2][kPack], int64_t first) {
      auto &g = x[0], &y = x[1];
      unrolled<kPack>(
          [&](int i) { g[i] = log ? g[i] - exp(y[i]) * total : y[i] * (g[i] - total); });
      in.write(g, first);
    });
  });
}

template <int N>
using RowKernel = void (*)(Rows<N>, bool);

/// By how much a thread has to hold: one run, four, or too much.
template <int N>
void launch_rows(const char* name, const std::array<Array, N>& arrays, bool log,
                 const std::array<RowKernel<N>, 3>& kernels) {
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
        Along(layout, static_cast<int>(k), last < 0 ? 1 : arrays[k].strides()[last])...};
  }
  (std::make_index_sequence<N>());
  const Rows<N> rows{layout, length, along};
  const int64_t runs = (length + kPack - 1) / kPack;
  if (runs <= 4 * kWarp) {
    launch(q, name, kernels[runs <= kWarp ? 0 : 1], blocks_for(q, layout.numel * kWarp), kThreads,
           0, rows, log);
  } else {
    const int64_t most = int64_t{4} * q.context.multiprocessors();
    launch(q, name, kernels[2], dim3(static_cast<unsigned>(std::min(layout.numel, most))),
           kRowThreads, 0, rows, log);
  }
}

/// f(Type<S>{}) with what the written array's rows are computed in.
template <class F>
void in_its_precision(const Array& y, F&& f) {
  if (y.dtype() == kFloat64)
    f(Type<double>{});
  else
    f(Type<float>{});
}

}  // namespace

void softmax(const Array& y, const Array& x, bool log) {
  in_its_precision(y, [&](auto t) {
    using S = typename decltype(t)::type;
    launch_rows<2>("softmax", {y, x}, log,
                   {softmax_rows<S, Warp, 1>, softmax_rows<S, Warp, 4>, softmax_rows<S, Block, 0>});
  });
}

void softmax_grad(const Array& dx, const Array& g, const Array& y, bool log) {
  in_its_precision(dx, [&](auto t) {
    using S = typename decltype(t)::type;
    launch_rows<3>("softmax gradient", {dx, g, y}, log,
                   {softmax_grad_rows<S, Warp, 1>, softmax_grad_rows<S, Warp, 4>,
                    softmax_grad_rows<S, Block, 0>});
  });
}

}  // namespace halftape::cuda
