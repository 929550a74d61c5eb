// Normalisation of rows and of channels, with statistics in float (double). One team of threads
// normalises a row, as in softmax; channels are reduced, then mapped.
#include "halftape/cuda/copy.h"
#include "halftape/cuda/cuda_backend.h"
#include "halftape/cuda/vector/map_runs.cuh"
#include "halftape/cuda/vector/reduction.cuh"
#include "halftape/cuda/vector/rows.cuh"

namespace halftape::cuda {
namespace {

/// The weights or biases of a row's elements; `otherwise` if there are none.
template <class S>
struct Weights {
  const char* base = nullptr;
  RunLayout along;
  S otherwise;

  Weights(const Array& w, S none) : otherwise(none) {
    if (!w.defined()) return;
    const Array start = w.select(0, 0);
    const Layout<1> layout({&start});
    base = layout.base[0];
    along = RunLayout(layout, 0, w.strides()[0]);
  }
  __device__ void fetch(S (&w)[kPack], int64_t first, int64_t length) const {
    if (base)
      load_run(w, base + first * along.step, along, length - first, otherwise);
    else
      unrolled<kPack>([&](int i) { w[i] = otherwise; });
  }
};

template <class S>
struct RowForward {
  Weights<S> weight, bias;
  S *mean, *rstd;  // of each row; null mean: normalises by the mean square
  S eps;
};
template <class S>
struct RowBackward {
  Weights<S> weight;
  const S *mean, *rstd;
};
template <class S>
S* statistics(const Array& a) {
  return a.defined() ? a.data<S>() : nullptr;
}

/// Two passes; the second corrects the rounding of the first one's mean: Chan, Golub & LeVeque
/// 1983, The American Statistician 37(3).
template <class S, class Team, int kHeld>
__global__ void __launch_bounds__(Team::kBlock, kRowThreads / Team::kBlock)
    norm_rows(const __grid_constant__ Rows<2> a, const __grid_constant__ RowForward<S> p) {
  for_rows<Team>(a, [&](int64_t row, char* const(&at)[2]) {
    Inputs<S, Team, 2, kHeld> in(a, at, S(0));
    const S n = static_cast<S>(a.length);
    S mean = 0;
    if (p.mean) {
      S sum = 0;
      in.each([&](S(&x)[1][kPack], int64_t) { unrolled<kPack>([&](int i) { sum += x[0][i]; }); });
      mean = Team::template all<formula::Sum>(sum) / n;
    }
    S rest = 0, squares = 0;
    in.each([&](S(&x)[1][kPack], int64_t first) {
      unrolled<kPack>([&](int i) {
        const S d = first + i < a.length ? x[0][i] - mean : S(0);
        rest += d;
        squares += d * d;
      });
    });
    squares = Team::template all<formula::Sum>(squares);
    if (p.mean) {
      rest = Team::template all<formula::Sum>(rest) / n;
      squares -= rest * rest * n;
      squares = squares < 0 ? S(0) : squares;
      mean += rest;
    }
    const S rstd = S(1) / sqrt(squares / n + p.eps);
    if (threadIdx.x % Team::kSize == 0) {
      if (p.mean) p.mean[row] = mean;
      p.rstd[row] = rstd;
    }
    in.each([&](S(&x)[1][kPack], int64_t first) {
      S w[kPack], b[kPack];
      p.weight.fetch(w, first, a.length);
      p.bias.fetch(b, first, a.length);
      unrolled<kPack>([&](int i) { x[0][i] = (x[0][i] - mean) * rstd * w[i] + b[i]; });
      in.write(x[0], first);
    });
  });
}

/// dx of rows from g and x.
template <class S, class Team, int kHeld>
__global__ void __launch_bounds__(Team::kBlock, kRowThreads / Team::kBlock)
    norm_grad_rows(const __grid_constant__ Rows<3> a, const __grid_constant__ RowBackward<S> p) {
  for_rows<Team>(a, [&](int64_t row, char* const(&at)[3]) {
    Inputs<S, Team, 3, kHeld> in(a, at, S(0));
    const S mean = p.mean ? p.mean[row] : S(0), rstd = p.rstd[row];
    // v ← g·weight and the normalised x.
    const auto prepare = [&](S(&v)[2][kPack], int64_t first) {
      S w[kPack];
      p.weight.fetch(w, first, a.length);
      unrolled<kPack>([&](int i) {
        v[0][i] *= w[i];
        v[1][i] = (v[1][i] - mean) * rstd;
      });
    };
    S shift = 0, along = 0;
    in.each([&](S(&v)[2][kPack], int64_t first) {
      prepare(v, first);
      unrolled<kPack>([&](int i) {
        shift += v[0][i];
        along += v[0][i] * v[1][i];
      });
    });
    const S n = static_cast<S>(a.length);
    shift = p.mean ? Team::template all<formula::Sum>(shift) / n : S(0);
    along = Team::template all<formula::Sum>(along) / n;
    in.each([&](S(&v)[2][kPack], int64_t first) {
      if (kHeld == 0) prepare(v, first);
      unrolled<kPack>([&](int i) { v[0][i] = (v[0][i] - shift - v[1][i] * along) * rstd; });
      in.write(v[0], first);
    });
  });
}

/// Count, mean and sum of squared deviations, joined in pairs: Chan, Golub & LeVeque 1979. Means
/// are measured from the output's first element, so that a mean far from 0 costs no digits.
template <class S>
struct Moments : JointReduction<S, 1, 3> {
  using Value = Several<S, 3>;
  using JointReduction<S, 1, 3>::JointReduction;
  __device__ static Value start() { return {}; }
  __device__ static Value join(const Value& a, const Value& b) {
    const S n = a.v[0] + b.v[0];
    if (n == S(0)) return a;
    const S d = b.v[1] - a.v[1], part = b.v[0] / n;
    return {{n, a.v[1] + d * part, a.v[2] + b.v[2] + d * d * (a.v[0] * part)}};
  }
  __device__ Value take_run(const Value& acc, char* const (&base)[1], int64_t first,
                            int64_t end) const {
    S x[kPack] = {};
    char* at[1];
    const int64_t left = end - first;
    if (this->straight) {
      this->locate(first, base, at);
      this->fetch(x, 0, at[0], left, S(0));
    } else {
      // A loop, since unrolled it would be long. x shifts, because registers cannot be indexed.
#pragma unroll 1
      for (int i = 0; i < kPack; ++i) {
        unrolled<kPack - 1>([&](int k) { x[k] = x[k + 1]; });
        if (i < left) this->locate(first + i, base, at);
        x[kPack - 1] = i < left ? this->template element<S>(0, at[0]) : S(0);
      }
    }
    this->locate(0, base, at);
    const S n = static_cast<S>(left < kPack ? left : kPack);
    const S origin = this->template element<S>(0, at[0]);
    S sum = 0, squares = 0;
    unrolled<kPack>([&](int i) {
      x[i] = i < left ? x[i] - origin : S(0);
      sum += x[i];
    });
    const S mean = sum / n;
    unrolled<kPack>([&](int i) {
      const S d = i < left ? x[i] - mean : S(0);
      squares += d * d;
    });
    return join(acc, {{n, mean, squares}});
  }
};

/// Σ g·(x − mean)·rstd and Σ g of g, x, mean and rstd: the gradients of weight and bias.
template <class S>
struct Products : JointReduction<S, 4, 2> {
  using Value = Several<S, 2>;
  bool centred = true;
  using JointReduction<S, 4, 2>::JointReduction;
  __device__ static Value start() { return {}; }
  __device__ static Value join(const Value& a, const Value& b) {
    return {{a.v[0] + b.v[0], a.v[1] + b.v[1]}};
  }
  __device__ Value take_run(Value acc, char* const (&base)[4], int64_t first, int64_t end) const {
    const auto take = [&](S g, S x, const char* mean, const char* rstd) {
      const S from = centred ? x - *reinterpret_cast<const S*>(mean) : x;
      acc.v[0] += g * (from * *reinterpret_cast<const S*>(rstd));
      acc.v[1] += g;
    };
    char* at[4];
    if (this->straight) {
      S g[kPack], x[kPack];
      this->locate(first, base, at);
      this->fetch(g, 0, at[0], end - first, S(0));
      this->fetch(x, 1, at[1], end - first, S(0));
      unrolled<kPack>([&](int i) {
        if (first + i < end)
          take(g[i], x[i], at[2] + i * this->along[2].step, at[3] + i * this->along[3].step);
      });
    } else {
#pragma unroll 1
      for (int64_t i = first; i < first + kPack && i < end; ++i) {
        this->locate(i, base, at);
        take(this->template element<S>(0, at[0]), this->template element<S>(1, at[1]), at[2],
             at[3]);
      }
    }
    return acc;
  }
};

/// Σ g·(x − mean)·rstd and Σ g over `dims`, contiguous and of S, which dweight and dbias get. They
/// are these arrays where they can be. mean and rstd have x's shape.
template <class S>
std::array<Array, 2> weight_grads(const char* name, const NormGrads& d, const Array& g,
                                  const Array& x, const Array& mean, const Array& rstd,
                                  const Dims& dims, int64_t outputs) {
  const std::array<Array, 2> wanted{d.dweight, d.dbias};
  std::array<Array, 2> sums = wanted;
  for (Array& s : sums)
    if (!s.defined() || s.dtype() != dtype_of<S> || s.shape() != Shape{outputs} || !s.contiguous())
      s = Array({outputs}, dtype_of<S>, x.device());
  if (x.numel() > 0) {
    Products<S> r({g, x, mean.defined() ? mean : rstd, rstd}, dims);
    r.centred = mean.defined();
    reduce_into<S, Products<S>>(name, sums, r);
  } else {
    for (const Array& s : sums) fill(s, 0);
  }
  for (size_t k = 0; k < sums.size(); ++k)
    if (wanted[k].defined() && wanted[k].raw() != sums[k].raw()) copy(wanted[k], sums[k]);
  return sums;
}

/// Computes mean and rstd of the batch and updates the running statistics, in one block.
template <class S>
struct Finish {
  const S* moments;  // (3, channels)
  const char*
      origin;  // the first element of channel 0; a channel's mean is measured from its first
  int64_t origin_step;
  Dtype origin_dtype;
  int64_t channels;
  S *mean, *rstd;
  S eps, momentum;
  bool skip_nonfinite;
  char* running[2];  // mean and variance, or null
  int64_t step[2];   // bytes
  Dtype dtype[2];
  int64_t* batches;  // or null
};
template <class S>
__global__ void __launch_bounds__(kWholeBlock, 1)
    finish_statistics(const __grid_constant__ Finish<S> f) {
  const auto moment = [&](int k, int64_t c) { return f.moments[k * f.channels + c]; };
  const auto statistic = [&](int k, int64_t c) {
    return k == 0 ? load<S>(f.origin + c * f.origin_step, f.origin_dtype) + moment(1, c)
                  : moment(2, c) / (moment(0, c) - S(1));
  };
  bool finite = true;
  for (int64_t c = threadIdx.x; c < f.channels; c += blockDim.x) {
    f.mean[c] = statistic(0, c);
    f.rstd[c] = S(1) / sqrt(moment(2, c) / moment(0, c) + f.eps);
    finite = finite && isfinite(statistic(0, c)) && isfinite(statistic(1, c));
  }
  const int64_t count = f.batches ? *f.batches + 1 : 1;
  const bool all = __syncthreads_and(finite) != 0;  // all threads have read the count as well
  if (f.skip_nonfinite && !all) return;
  if (f.batches && threadIdx.x == 0) *f.batches = count;
  const S share = f.momentum < 0 && f.batches ? S(1) / static_cast<S>(count) : f.momentum;
  for (int k = 0; k < 2; ++k) {
    if (!f.running[k]) continue;
    for (int64_t c = threadIdx.x; c < f.channels; c += blockDim.x) {
      char* at = f.running[k] + c * f.step[k];
      const S before = load<S>(at, f.dtype[k]);
      store(at, f.dtype[k], (S(1) - share) * before + share * statistic(k, c));
    }
  }
}

/// y of x, mean, rstd, weight and bias.
struct Apply {
  template <class S>
  __device__ void operator()(S (&v)[6]) const {
    v[0] = (v[1] - v[2]) * (v[3] * v[4]) + v[5];
  }
};
/// dx of g, x, mean, rstd, weight, Σ g·unit and Σ g over n elements.
struct ApplyGrad {
  double n;
  template <class S>
  __device__ void operator()(S (&v)[8]) const {
    const S unit = (v[2] - v[3]) * v[4], count = static_cast<S>(n);
    v[0] = (v[1] - v[7] / count - unit * (v[6] / count)) * (v[4] * v[5]);
  }
};

/// Numbers of channels, expanded to the shape of x (N, C, S).
Array per_channel(const Array& of_channels, const Array& x) {
  if (!of_channels.defined()) return {};
  return of_channels.as_strided(x.shape(), {0, of_channels.strides()[0], 0}, of_channels.offset());
}
/// Numbers of rows, expanded to the shape of x.
Array per_row(const Array& of_rows, const Array& x) {
  if (!of_rows.defined()) return {};
  Strides strides = of_rows.strides();
  strides.push_back(0);
  return of_rows.as_strided(x.shape(), strides, of_rows.offset());
}

}  // namespace

void CudaBackend::row_norm(const Array& y, const Norm& norm) {
  if (y.numel() == 0) return;
  in_its_precision(norm.x, [&](auto t) {
    using S = typename decltype(t)::type;
    launch_rows<2, RowForward<S>>(
        "row norm", {y, norm.x},
        {Weights<S>(norm.weight, 1), Weights<S>(norm.bias, 0), statistics<S>(norm.mean),
         statistics<S>(norm.rstd), static_cast<S>(norm.eps)},
        {norm_rows<S, Warp, held<S>(1)>, norm_rows<S, Warp, held<S>(4)>, norm_rows<S, Block, 0>});
  });
}

void CudaBackend::row_norm_grad(const NormGrads& d, const Array& g, const Norm& norm) {
  in_its_precision(norm.x, [&](auto t) {
    using S = typename decltype(t)::type;
    const Array& x = norm.x;
    if (d.dweight.defined() || d.dbias.defined()) {
      Dims lead;
      for (int k = 0; k + 1 < x.dim(); ++k) lead.push_back(k);
      weight_grads<S>("row norm weight gradient", d, g, x, per_row(norm.mean, x),
                      per_row(norm.rstd, x), lead, x.size(x.dim() - 1));
    }
    if (!d.dx.defined() || x.numel() == 0) return;
    launch_rows<3, RowBackward<S>>(
        "row norm gradient", {d.dx, g, x},
        {Weights<S>(norm.weight, 1), statistics<S>(norm.mean), statistics<S>(norm.rstd)},
        {norm_grad_rows<S, Warp, held<S>(1)>, norm_grad_rows<S, Warp, held<S>(4)>,
         norm_grad_rows<S, Block, 0>});
  });
}

void CudaBackend::batch_norm(const Array& y, const Norm& norm, bool training,
                             const RunningStats& running) {
  const Array& x = norm.x;
  in_its_precision(norm.x, [&](auto t) {
    using S = typename decltype(t)::type;
    if (training && x.numel() > 0) {
      const int64_t channels = x.size(1);
      const Array moments({3, channels}, dtype_of<S>, x.device());
      reduce_into<S, Moments<S>>("batch norm statistics",
                                 {moments.select(0, 0), moments.select(0, 1), moments.select(0, 2)},
                                 Moments<S>({x}, {0, 2}));
      Finish<S> f{moments.data<S>(),
                  static_cast<const char*>(x.raw()),
                  x.strides()[1] * static_cast<int64_t>(element_size(x.dtype())),
                  x.dtype(),
                  channels,
                  norm.mean.data<S>(),
                  norm.rstd.data<S>(),
                  static_cast<S>(norm.eps),
                  static_cast<S>(running.momentum),
                  running.skip_nonfinite,
                  {},
                  {},
                  {},
                  running.batches.defined() ? running.batches.data<int64_t>() : nullptr};
      const Array* const kept[] = {&running.mean, &running.var};
      for (int k = 0; k < 2; ++k) {
        if (!kept[k]->defined()) continue;
        f.running[k] = static_cast<char*>(kept[k]->raw());
        f.dtype[k] = kept[k]->dtype();
        f.step[k] = kept[k]->strides()[0] * static_cast<int64_t>(element_size(f.dtype[k]));
      }
      launch(queue(x), "batch norm running statistics", finish_statistics<S>, dim3(1), kWholeBlock,
             0, f);
    }
    map_by_runs<S, 6>("batch norm",
                      {y, x, per_channel(norm.mean, x), per_channel(norm.rstd, x),
                       per_channel(norm.weight, x), per_channel(norm.bias, x)},
                      {0, 0, 0, 0, 1, 0}, Apply{});
  });
}

void CudaBackend::batch_norm_grad(const NormGrads& d, const Array& g, const Norm& norm,
                                  bool training) {
  const Array& x = norm.x;
  const Array mean = per_channel(norm.mean, x), rstd = per_channel(norm.rstd, x);
  in_its_precision(norm.x, [&](auto t) {
    using S = typename decltype(t)::type;
    Array product, sum;
    if (training || d.dweight.defined() || d.dbias.defined()) {
      const auto sums =
          weight_grads<S>("batch norm weight gradient", d, g, x, mean, rstd, {0, 2}, x.size(1));
      if (training) product = per_channel(sums[0], x), sum = per_channel(sums[1], x);
    }
    if (!d.dx.defined()) return;
    map_by_runs<S, 8>(
        "batch norm gradient", {d.dx, g, x, mean, rstd, per_channel(norm.weight, x), product, sum},
        {0, 0, 0, 0, 0, 1, 0, 0}, ApplyGrad{static_cast<double>(x.size(0) * x.size(2))});
  });
}

}  // namespace halftape::cuda
