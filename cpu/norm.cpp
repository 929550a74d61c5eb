// Normalisation of rows and of channels: statistics in float (double) of a row that stays in cache.
#include <cmath>

#include "halftape/cpu/cpu_backend.h"
#include "halftape/cpu/rows.h"
#include "halftape/cpu/vector/cascade.h"

namespace halftape::cpu {
namespace {

/// Σ f(i) over the chunks of a row, in an order of blocks that keeps the error small.
template <class S, class F>
S sum_of(int64_t padded, const F& f) {
  constexpr int64_t kBlock = 4096;  // elements
  if (padded <= kBlock) {
    Running<formula::Sum, S> sum;
    for (int64_t i = 0; i < padded; i += kLanes) sum.add(f(i));
    return sum.total();
  }
  Cascade<formula::Sum, S> blocks;
  for (int64_t begin = 0; begin < padded; begin += kBlock) {
    Running<formula::Sum, S> sum;
    for (int64_t i = begin; i < std::min(padded, begin + kBlock); i += kLanes) sum.add(f(i));
    blocks.add(sum.lanes());
  }
  return combine_lanes<formula::Sum>(blocks.total());
}

template <class S>
struct Moments {
  S mean, squares;  // squares: Σ (x − mean)²
};
/// Two passes, the second of which mends what rounding did to the first one's mean: Chan, Golub &
/// LeVeque 1983, The American Statistician 37(3). Without a mean, about 0.
template <class S>
Moments<S> moments(S* x, int64_t length, int64_t padded, bool centred) {
  const auto n = static_cast<S>(length);
  std::fill(x + length, x + padded, S(0));
  if (!centred) return {0, sum_of<S>(padded, [x](int64_t i) { return at(x, i) * at(x, i); })};
  const S mean = sum_of<S>(padded, [x](int64_t i) { return at(x, i); }) / n;
  std::fill(x + length, x + padded, mean);
  const S rest = sum_of<S>(padded, [=](int64_t i) { return at(x, i) - mean; }) / n;
  const S squares = sum_of<S>(padded, [=](int64_t i) {
    const Chunk<S> d = at(x, i) - mean;
    return d * d;
  });
  const S mended = squares - rest * rest * n;
  return {mean + rest, mended < 0 ? S(0) : mended};
}

/// A weight for each element of a row, as whole chunks, or for each row; `otherwise` where there is
/// none.
template <class S>
class Weights {
 public:
  Weights(const Array& weights, int64_t count, S otherwise) : scratch_(count + kLanes) {
    std::fill_n(scratch_.data(), count + kLanes, otherwise);
    if (!weights.defined()) return;
    const Array same = weights.to(dtype_of<S>).to_contiguous();
    std::copy_n(same.data<S>(), count, scratch_.data());
  }
  S operator[](int64_t i) const { return scratch_.data()[i]; }
  const Chunk<S>& chunk(int64_t i) const { return at(scratch_.data(), i); }

 private:
  Scratch<S> scratch_;
};

template <class S>
void row_norm_as(const Array& y, const Norm& norm, int64_t length) {
  const Weights<S> weight(norm.weight, length, 1), bias(norm.bias, length, 0);
  const bool centred = norm.mean.defined();
  for_rows<S, 1>(rows_of(y), {rows_of(norm.x)},
                 [&](int64_t r, std::array<S*, 2> rows, int64_t n, int64_t padded) {
                   S *out = rows[0], *x = rows[1];
                   const Moments<S> m = moments(x, n, padded, centred);
                   const S rstd =
                       1 / std::sqrt(m.squares / static_cast<S>(n) + static_cast<S>(norm.eps));
                   if (centred) norm.mean.data<S>()[r] = m.mean;
                   norm.rstd.data<S>()[r] = rstd;
                   for (int64_t i = 0; i < padded; i += kLanes)
                     at(out, i) = (at(x, i) - m.mean) * rstd * weight.chunk(i) + bias.chunk(i);
                 });
}

/// dx of rows; dweight and dbias are sums down the columns, in blocks of rows.
template <class S>
void row_norm_grad_as(const NormGrads& d, const Array& dx, const Array& g, const Norm& norm,
                      int64_t length) {
  constexpr int64_t kRows = 128;
  const Weights<S> weight(norm.weight, length, 1);
  const S *means = norm.mean.defined() ? norm.mean.data<S>() : nullptr,
          *rstds = norm.rstd.data<S>();
  const bool of_weight = d.dweight.defined() || d.dbias.defined();
  const int64_t padded = (length + kLanes - 1) / kLanes * kLanes;
  const int64_t blocks = of_weight && length > 0 ? (g.numel() / length + kRows - 1) / kRows : 0;
  const Scratch<S> scratch(2 * blocks * padded);
  S *products = scratch.data(), *sums = products + blocks * padded;
  for_rows<S, 2>(
      dx.defined() ? rows_of(dx) : Array(), {rows_of(g), rows_of(norm.x)},
      [&](int64_t r, std::array<S*, 3> rows, int64_t n, int64_t) {
        S *out = rows[0], *g_row = rows[1], *x = rows[2];
        const S mean = means ? means[r] : 0, rstd = rstds[r];
        std::fill(g_row + n, g_row + padded, S(0)), std::fill(x + n, x + padded, S(0));
        const auto unit = [=](int64_t i) { return (at(x, i) - mean) * rstd; };
        if (of_weight) {
          S *product = products + r / kRows * padded, *sum = sums + r / kRows * padded;
          if (r % kRows == 0) std::fill_n(product, padded, S(0)), std::fill_n(sum, padded, S(0));
          for (int64_t i = 0; i < padded; i += kLanes) {
            at(product, i) = at(product, i) + at(g_row, i) * unit(i);
            at(sum, i) = at(sum, i) + at(g_row, i);
          }
        }
        if (!dx.defined()) return;
        const auto gw = [&](int64_t i) { return at(g_row, i) * weight.chunk(i); };
        const auto count = static_cast<S>(n);
        const S shift = means ? sum_of<S>(padded, gw) / count : 0;
        const S along = sum_of<S>(padded, [&](int64_t i) { return gw(i) * unit(i); }) / count;
        for (int64_t i = 0; i < padded; i += kLanes)
          at(out, i) = (gw(i) - shift - unit(i) * along) * rstd;
      },
      kRows);
  for (const auto& [to, partial] : {std::pair{&d.dweight, products}, {&d.dbias, sums}}) {
    if (!to->defined()) continue;
    const Array total({length}, dtype_of<S>, kCPU);
    for (int64_t column = 0; column < length; column += kLanes) {
      Cascade<formula::Sum, S> all;
      for (int64_t b = 0; b < blocks; ++b) all.add(at(partial + b * padded, column));
      std::copy_n(all.total().v, std::min<int64_t>(kLanes, length - column),
                  total.data<S>() + column);
    }
    copy(*to, total);
  }
}

/// x (N, C, S) as a row for each channel: a piece of each sample, or where those are short, copied
/// into one piece.
bool channels_lie_in_pieces(const Array& x) { return x.size(2) >= kLanes && x.strides()[2] == 1; }
Array channels_of(const Array& x) {
  Array channels = x.permute({1, 0, 2});
  if (channels_lie_in_pieces(x)) return channels;
  return channels.to_contiguous().reshape({x.size(1), 1, x.size(0) * x.size(2)});
}
/// Where a kernel writes such rows, and the copy to y that may be left to do.
struct Written {
  Array y, rows;
  explicit Written(const Array& to) : y(to) {
    if (!to.defined()) return;
    rows = channels_lie_in_pieces(to)
               ? to.permute({1, 0, 2})
               : Array({to.size(1), 1, to.size(0) * to.size(2)}, to.dtype(), kCPU);
  }
  void finish() const {
    if (!y.defined() || rows.buffer() == y.buffer()) return;
    copy(y.permute({1, 0, 2}), rows.reshape({y.size(1), y.size(0), y.size(2)}));
  }
};

/// The batch's statistics into the running ones.
template <class S>
void take_in(const RunningStats& running, const Array& mean, const Array& var) {
  const S *m = mean.data<S>(), *v = var.data<S>();
  const int64_t channels = mean.numel();
  for (int64_t c = 0; c < channels && running.skip_nonfinite; ++c)
    if (!std::isfinite(m[c]) || !std::isfinite(v[c])) return;
  auto share = static_cast<S>(running.momentum);
  if (running.batches.defined()) {
    const int64_t count = ++*running.batches.data<int64_t>();
    if (running.momentum < 0) share = S(1) / static_cast<S>(count);
  }
  const auto move_towards = [&](const Array& to, const S* now) {
    if (!to.defined()) return;
    Lanes<S> lanes(to.dtype());
    char* at = static_cast<char*>(to.raw());
    const int64_t step = to.strides()[0];
    for (int64_t c = 0, n; c < channels; c += n, at += n * step * lanes.item()) {
      n = Lanes<S>::block(channels - c);
      S* kept = lanes.read(at, step, n);
      for (int64_t k = 0; k < n; ++k) kept[k] = (1 - share) * kept[k] + share * now[c + k];
      lanes.write(kept, at, step, n);
    }
  };
  move_towards(running.mean, m);
  move_towards(running.var, v);
}

template <class S>
void batch_norm_as(const Array& y, const Norm& norm, bool training, const RunningStats& running) {
  const int64_t channels = norm.x.size(1);
  const Weights<S> weight(norm.weight, channels, 1), bias(norm.bias, channels, 0);
  const Array var = training ? empty_like(norm.mean) : Array();
  const Written to(y);
  for_rows<S, 1>(to.rows, {channels_of(norm.x)},
                 [&](int64_t c, std::array<S*, 2> rows, int64_t n, int64_t padded) {
                   S *out = rows[0], *x = rows[1];
                   S &mean = norm.mean.data<S>()[c], &rstd = norm.rstd.data<S>()[c];
                   if (training) {
                     const Moments<S> m = moments(x, n, padded, true);
                     mean = m.mean;
                     rstd = 1 / std::sqrt(m.squares / static_cast<S>(n) + static_cast<S>(norm.eps));
                     var.data<S>()[c] = m.squares / static_cast<S>(n - 1);
                   }
                   const S scale = rstd * weight[c];
                   for (int64_t i = 0; i < padded; i += kLanes)
                     at(out, i) = (at(x, i) - mean) * scale + bias[c];
                 });
  to.finish();
  if (training) take_in<S>(running, norm.mean, var);
}

template <class S>
void batch_norm_grad_as(const NormGrads& d, const Array& g_in, const Norm& norm, bool training) {
  const int64_t channels = norm.x.size(1);
  const Weights<S> weight(norm.weight, channels, 1);
  const Array dweight = empty_like(norm.mean), dbias = empty_like(norm.mean);
  const Written to(d.dx);
  for_rows<S, 2>(
      to.rows, {channels_of(g_in), channels_of(norm.x)},
      [&](int64_t c, std::array<S*, 3> rows, int64_t n, int64_t padded) {
        S *out = rows[0], *g = rows[1], *x = rows[2];
        const S mean = norm.mean.data<S>()[c], rstd = norm.rstd.data<S>()[c];
        std::fill(g + n, g + padded, S(0)), std::fill(x + n, x + padded, S(0));
        const auto unit = [=](int64_t i) { return (at(x, i) - mean) * rstd; };
        const S sum = sum_of<S>(padded, [g](int64_t i) { return at(g, i); });
        const S product = sum_of<S>(padded, [&](int64_t i) { return at(g, i) * unit(i); });
        dweight.data<S>()[c] = product, dbias.data<S>()[c] = sum;
        const auto count = static_cast<S>(n);
        const S shift = training ? sum / count : 0, along = training ? product / count : 0;
        const S scale = rstd * weight[c];
        for (int64_t i = 0; i < padded; i += kLanes)
          at(out, i) = (at(g, i) - shift - unit(i) * along) * scale;
      });
  to.finish();
  if (d.dweight.defined()) copy(d.dweight, dweight);
  if (d.dbias.defined()) copy(d.dbias, dbias);
}

}  // namespace

void CpuBackend::row_norm(const Array& y, const Norm& norm) {
  const Array out = y.contiguous() ? y : empty_like(y);
  with_float_type(norm.x.dtype(), [&](auto t) {
    row_norm_as<typename decltype(t)::type>(out, norm, y.size(y.dim() - 1));
  });
  if (!y.contiguous()) copy(y, out);
}

void CpuBackend::row_norm_grad(const NormGrads& d, const Array& g, const Norm& norm) {
  const int64_t length = g.size(g.dim() - 1);
  with_float_type(norm.x.dtype(), [&](auto t) {
    using S = typename decltype(t)::type;
    const Array out = !d.dx.defined() || d.dx.contiguous() ? d.dx : empty_like(d.dx);
    row_norm_grad_as<S>(d, out, g, norm, length);
    if (d.dx.defined() && !d.dx.contiguous()) copy(d.dx, out);
  });
}

void CpuBackend::batch_norm(const Array& y, const Norm& norm, bool training,
                            const RunningStats& running) {
  with_float_type(norm.x.dtype(), [&](auto t) {
    batch_norm_as<typename decltype(t)::type>(y, norm, training, running);
  });
}

void CpuBackend::batch_norm_grad(const NormGrads& d, const Array& g, const Norm& norm,
                                 bool training) {
  with_float_type(norm.x.dtype(), [&](auto t) {
    batch_norm_grad_as<typename decltype(t)::type>(d, g, norm, training);
  });
}

}  // namespace halftape::cpu
