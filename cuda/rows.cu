// Softmax and cross-entropy along the last dimension: statistics in float (double).
#include <limits>

#include "halftape/cuda/cuda_backend.h"
#include "halftape/cuda/fused.h"
#include "halftape/cuda/runtime/last_block.cuh"
#include "halftape/cuda/update/scaler.cuh"
#include "halftape/cuda/vector/index_check.cuh"
#include "halftape/cuda/vector/map.cuh"
#include "halftape/cuda/vector/rows.cuh"

namespace halftape::cuda {
namespace {

template <class S, class Team, int kHeld>
__global__ void __launch_bounds__(Team::kBlock, kRowThreads / Team::kBlock)
    softmax_rows(const __grid_constant__ Rows<2> a, bool log) {
  for_rows<Team>(a, [&](int64_t, char* const(&at)[2]) {
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
__global__ void __launch_bounds__(Team::kBlock, kRowThreads / Team::kBlock)
    softmax_grad_rows(const __grid_constant__ Rows<3> a, bool log) {
  for_rows<Team>(a, [&](int64_t, char* const(&at)[3]) {
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

/// The arguments of the kernel of cross-entropy beside the rows.
template <class S>
struct Targets {
  const int64_t* target;
  const S* weight;  // null: 1
  int64_t ignored;
  Range range;
  S smoothing;
  S *loss, *counted;  // counted: the weight of each row's target, or null
  bool grad;          // writes the gradient
  S *total, *mean;    // null: not computed here
  BlockCounter counter;
  bool scales;  // scales the mean, and checks it
  ScaledLoss scaling;

  __device__ S weight_of(int64_t c) const { return weight ? weight[c] : S(1); }
};

/// The mean loss, after all rows.
template <class S>
__device__ void average(const Targets<S>& o, int64_t rows) {
  __shared__ S of_threads[2][kRowThreads];
  S lost = 0, counted = 0;
  for (int64_t row = threadIdx.x; row < rows; row += blockDim.x) {
    lost += o.loss[row];
    counted += o.counted[row];
  }
  of_threads[0][threadIdx.x] = lost;
  of_threads[1][threadIdx.x] = counted;
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half)
      for (auto& sums : of_threads) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x > 0) return;
  *o.total = of_threads[1][0];
  *o.mean = of_threads[0][0] / of_threads[1][0];
  if (o.scales) o.scaling.template run<S>();
}

/// Writes the gradient of a row whose target is ignored.
template <class S, class In>
__device__ void write_zeros(In& in) {
  in.each([&](S(&x)[1][kPack], int64_t begin) {
    unrolled<kPack>([&](int i) { x[0][i] = 0; });
    in.write(x[0], begin);
  });
}

/// The loss of each row, and its gradient by the row.
template <class S, class Team, int kHeld>
__global__ void __launch_bounds__(Team::kBlock, kRowThreads / Team::kBlock)
    cross_entropy_rows(const __grid_constant__ Rows<2> a, const __grid_constant__ Targets<S> o) {
  for_rows<Team>(a, [&](int64_t row, char* const(&at)[2]) {
    // A warp has short rows: with longer indices, sm_120 spills registers.
    using Column = std::conditional_t<std::is_same_v<Team, Warp>, int, int64_t>;
    const int64_t target = o.target[row];
    const bool counts = target != o.ignored, first = threadIdx.x % Team::kSize == 0;
    if (counts && !o.range.contains(target)) {
      if (first) o.range.report(target, row);
      return;
    }
    const Column t = static_cast<Column>(target), length = static_cast<Column>(a.length);
    const S w = counts ? o.weight_of(t) : S(0);
    if (first && o.counted) o.counted[row] = w;
    if (first && !counts) o.loss[row] = 0;
    if (!counts && !o.grad) return;
    constexpr S lowest = -std::numeric_limits<S>::infinity();  // adds e^−∞ = 0
    Inputs<S, Team, 2, kHeld> in(a, at, lowest);
    if (!counts) return write_zeros<S>(in);
    S top = lowest, total = 0;
    in.each([&](S(&x)[1][kPack], int64_t) {
      unrolled<kPack>([&](int i) { top = formula::Max::step(top, x[0][i]); });
    });
    top = Team::template all<formula::Max>(top);
    in.each([&](S(&x)[1][kPack], int64_t) {
      unrolled<kPack>([&](int i) { total += exp(x[0][i] - top); });
    });
    total = Team::template all<formula::Sum>(total);
    const S shift = halftape::log(total), hard = (S(1) - o.smoothing) * w;
    const auto lost = [&](S x) { return shift - (x - top); };  // −ln p
    const S each = o.smoothing / static_cast<S>(a.length);
    S spread = 0, all = 0;  // what smoothing adds; the weight of all classes
    if (o.smoothing != 0) {
      in.each([&](S(&x)[1][kPack], int64_t begin) {
        unrolled<kPack>([&](int i) {
          const Column c = static_cast<Column>(begin) + i;
          if (c >= length) return;
          const S weight = o.weight_of(c);
          spread += weight * lost(x[0][i]);
          all += weight;
        });
      });
      spread = Team::template all<formula::Sum>(spread);
      all = Team::template all<formula::Sum>(all);
    }
    if (first)
      o.loss[row] =
          hard * lost(load<S>(at[1] + target * a.along[1].step, a.along[1].dtype)) + each * spread;
    if (!o.grad) return;
    const S factor = (hard + each * all) / total;
    in.each([&](S(&x)[1][kPack], int64_t begin) {
      unrolled<kPack>([&](int i) {
        const Column c = static_cast<Column>(begin) + i;
        S g = exp(x[0][i] - top) * factor;
        if (o.smoothing != 0 && c < length) g -= each * o.weight_of(c);
        x[0][i] = c == t ? g - hard : g;
      });
      in.write(x[0], begin);
    });
  });
  if (o.mean && o.counter.is_last()) average(o, a.starts.numel);
}

template <class S>
struct OfMean {
  __device__ void operator()(S (&x)[4]) const {
    x[0] = x[3] == S(0) ? S(0) : x[1] * (x[2] / x[3]);  // 0 where all targets are ignored
  }
};

}  // namespace

void CudaBackend::softmax(const Array& y, const Array& x, bool log) {
  in_its_precision(y, [&](auto t) {
    using S = typename decltype(t)::type;
    launch_rows<2, bool>("softmax", {y, x}, log,
                         {softmax_rows<S, Warp, held<S>(1)>, softmax_rows<S, Warp, held<S>(4)>,
                          softmax_rows<S, Block, 0>});
  });
}

void CudaBackend::softmax_grad(const Array& dx, const Array& g, const Array& y, bool log) {
  in_its_precision(dx, [&](auto t) {
    using S = typename decltype(t)::type;
    launch_rows<3, bool>("softmax gradient", {dx, g, y}, log,
                         {softmax_grad_rows<S, Warp, held<S>(1)>,
                          softmax_grad_rows<S, Warp, held<S>(4)>, softmax_grad_rows<S, Block, 0>});
  });
}

bool cross_entropy_fused(const CrossEntropy& o, const CheckedScale* scaling) {
  // So many rows are summed by one block as fast as by a launch of their own.
  constexpr int64_t kMostRows = 1 << 12;
  const bool mean = o.mean.defined() && o.loss.numel() > 0 && o.loss.numel() <= kMostRows;
  in_its_precision(o.loss, [&](auto t) {
    using S = typename decltype(t)::type;
    const Array written = o.grad.defined() ? o.grad : o.x;  // x is not written
    const Targets<S> targets{
        o.target.data<int64_t>(),
        o.weight.defined() ? o.weight.data<S>() : nullptr,
        o.ignored,
        {0, o.x.size(o.x.dim() - 1), {"cross_entropy", "target"}, Context::of(o.x).board()},
        static_cast<S>(o.smoothing),
        o.loss.data<S>(),
        o.counted.defined() ? o.counted.data<S>() : nullptr,
        o.grad.defined(),
        mean ? o.total.data<S>() : nullptr,
        mean ? o.mean.data<S>() : nullptr,
        mean ? block_counter(queue(o.x)) : BlockCounter(),
        mean && scaling,
        mean && scaling ? scaled_loss(*scaling) : ScaledLoss()};
    launch_rows<2, Targets<S>>(
        "cross_entropy", {written, o.x}, targets,
        {cross_entropy_rows<S, Warp, held<S>(1)>, cross_entropy_rows<S, Warp, held<S>(4)>,
         cross_entropy_rows<S, Block, 0>});
  });
  return mean || !o.mean.defined();
}

void cross_entropy_grad(const CrossEntropyGrad& c) {
  const Array every_g = c.g.expand(c.dx.shape()), every_total = c.total.expand(c.dx.shape());
  in_its_precision(c.slopes, [&](auto t) {
    using S = typename decltype(t)::type;
    map<S, 4>("cross_entropy gradient", {&c.dx, &c.slopes, &every_g, &every_total}, OfMean<S>{});
  });
}

}  // namespace halftape::cuda
