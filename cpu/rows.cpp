// Softmax and cross-entropy along the last dimension: statistics in float (double), one pass over a
// row that stays in cache.
#include <cmath>

#include "halftape/core/contract/unfused.h"
#include "halftape/cpu/cpu_backend.h"
#include "halftape/cpu/rows.h"
#include "halftape/cpu/vector/cascade.h"

namespace halftape::cpu {
namespace {

template <class S>
void softmax_as(const Array& y, const Array& x, bool log) {
  for_rows<S, 1>(y, {x}, [log](int64_t, std::array<S*, 2> rows, int64_t length, int64_t padded) {
    S *out = rows[0], *in = rows[1];
    const auto [top, total] = Exponentials<S>(out, in, length, padded);
    if (log) {
      const S shift = math::logarithm(total);
      for (int64_t i = 0; i < padded; i += kLanes) at(out, i) = (at(in, i) - top) - shift;
    } else {
      for (int64_t i = 0; i < padded; i += kLanes) at(out, i) = at(out, i) / total;
    }
  });
}

template <class S>
void softmax_grad_as(const Array& dx, const Array& g, const Array& y, bool log) {
  for_rows<S, 2>(dx, {g, y},
                 [log](int64_t, std::array<S*, 3> rows, int64_t length, int64_t padded) {
                   S *out = rows[0], *gradient = rows[1], *value = rows[2];
                   for (int64_t i = length; i < padded; ++i) gradient[i] = 0, value[i] = 0;
                   Running<formula::Sum, S> sum;
                   for (int64_t i = 0; i < padded; i += kLanes)
                     sum.add(log ? at(gradient, i) : at(gradient, i) * at(value, i));
                   const S total = sum.total();
                   for (int64_t i = 0; i < padded; i += kLanes)
                     at(out, i) = log ? at(gradient, i) - exp(at(value, i)) * total
                                      : at(value, i) * (at(gradient, i) - total);
                 });
}

/// Σ term(i) over a row, in the same order.
template <class S, class F>
S sum_of(int64_t length, const F& term) {
  Chunk<S> acc(S(0));
  for (int64_t i = 0; i < length; i += kLanes)
    for (int64_t k = 0, n = std::min<int64_t>(kLanes, length - i); k < n; ++k)
      acc.v[k] += term(i + k);
  return combine_lanes<formula::Sum>(acc);
}

/// What the rows of a cross-entropy have in common.
template <class S>
struct Classes {
  const CrossEntropy& o;
  const int64_t count;
  const int64_t* target = o.target.data<int64_t>();
  const S* weight = o.weight.defined() ? o.weight.data<S>() : nullptr;
  S* loss = o.loss.data<S>();
  S* counted = o.counted.defined() ? o.counted.data<S>() : nullptr;
  const S share = static_cast<S>(o.smoothing / static_cast<double>(count));
  const S all = sum_of<S>(count, [this](int64_t c) { return weight_of(c); });

  S weight_of(int64_t c) const { return weight ? weight[c] : S(1); }
  bool counts(int64_t row) const { return target[row] != o.ignored; }
  /// What the target's class of a row weighs, which `counted` gets.
  S weigh(int64_t row) const {
    const S w = counts(row) ? weight_of(target[row]) : S(0);
    if (counted) counted[row] = w;
    return w;
  }
};

template <class S>
void cross_entropy_as(const Classes<S>& all, const Array& x) {
  const CrossEntropy& o = all.o;
  for_rows<S, 1>(
      o.grad.defined() ? rows_of(o.grad) : Array(), {rows_of(x)},
      [&](int64_t row, std::array<S*, 2> rows, int64_t length, int64_t padded) {
        S *out = rows[0], *in = rows[1], &loss = all.loss[row];
        const S w = all.weigh(row);
        if (!all.counts(row)) {
          loss = 0;
          std::fill(out, out + padded, S(0));
          return;
        }
        const int64_t t = all.target[row];
        const Exponentials<S> e(out, in, length, padded);
        const S shift = math::logarithm(e.total), hard = static_cast<S>(1 - o.smoothing) * w;
        const auto lost = [&](int64_t c) { return shift - (in[c] - e.top); };  // −ln p
        loss = hard * lost(t);
        if (o.smoothing != 0)
          loss +=
              all.share * sum_of<S>(length, [&](int64_t c) { return all.weight_of(c) * lost(c); });
        if (!o.grad.defined()) return;
        const S factor = (hard + all.share * all.all) / e.total;
        for (int64_t i = 0; i < padded; i += kLanes) at(out, i) = at(out, i) * factor;
        if (o.smoothing != 0)
          for (int64_t c = 0; c < length; ++c) out[c] -= all.share * all.weight_of(c);
        out[t] -= hard;
      });
}

/// The elements of 32 rows of up to 32 classes, a chunk for each class, joined in the order in
/// which joined() joins those of one row.
template <class Op, class S>
Chunk<S> join_classes(const Chunk<S>* x, int64_t count) {
  Chunk<S> c[kLanes];
  std::copy_n(x, count, c);
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t k = 0; k + half < count; ++k) step_chunk<Op>(c[k], c[k + half]);
    count = std::min(count, half);
  }
  return c[0];
}

/// The same as cross_entropy_as() for up to 32 classes, of which a row would leave most lanes of a
/// chunk empty: 32 rows at a time, a lane each. Reads `rows` of them from row `first` on.
template <class S>
void cross_entropy_of_few(const Classes<S>& all, const Array& x, int64_t first, int64_t rows) {
  const CrossEntropy& o = all.o;
  const int64_t C = all.count;
  const auto place = [&](const Array& a, int64_t c) {
    return static_cast<char*>(a.raw()) +
           (first * C + c) * static_cast<int64_t>(element_size(a.dtype()));
  };
  Chunk<S> in[kLanes], power[kLanes], hard(S(0)), lost(S(0));
  for (int64_t c = 0; c < C; ++c) loader<S>(x.dtype())(place(x, c), C, rows, in[c].v);
  const Chunk<S> top = join_classes<formula::Max>(in, C);
  for (int64_t c = 0; c < C; ++c) {
    in[c] = in[c] - top;
    power[c] = each(in[c], [](S v) { return math::power_of_e(v); });
  }
  const Chunk<S> total = join_classes<formula::Sum>(power, C),
                 shift = each(total, [](S v) { return math::logarithm(v); });
  for (int64_t k = 0; k < rows; ++k) {
    hard.v[k] = static_cast<S>(1 - o.smoothing) * all.weigh(first + k);
    if (all.counts(first + k))
      lost.v[k] = hard.v[k] * (shift.v[k] - in[all.target[first + k]].v[k]);
  }
  if (o.smoothing != 0) {
    for (int64_t c = 0; c < C; ++c) in[c] = S(0) + all.weight_of(c) * (shift - in[c]);
    lost = lost + all.share * join_classes<formula::Sum>(in, C);
  }
  for (int64_t k = 0; k < rows; ++k) all.loss[first + k] = all.counts(first + k) ? lost.v[k] : S(0);
  if (!o.grad.defined()) return;
  const Chunk<S> factor = (hard + all.share * all.all) / total;
  for (int64_t c = 0; c < C; ++c) {
    power[c] = power[c] * factor;
    if (o.smoothing != 0) power[c] = power[c] - all.share * all.weight_of(c);
  }
  for (int64_t k = 0; k < rows; ++k)
    if (all.counts(first + k))
      power[all.target[first + k]].v[k] -= hard.v[k];
    else
      for (int64_t c = 0; c < C; ++c) power[c].v[k] = 0;
  for (int64_t c = 0; c < C; ++c) storer<S>(o.grad.dtype())(power[c].v, rows, place(o.grad, c), C);
}

}  // namespace

void CpuBackend::softmax(const Array& y, const Array& x, bool log) {
  const Array out = y.contiguous() ? y : empty_like(y);
  with_float_type(y.dtype(), [&](auto t) {
    softmax_as<typename decltype(t)::type>(rows_of(out), rows_of(x), log);
  });
  if (!y.contiguous()) copy(y, out);
}

void CpuBackend::softmax_grad(const Array& dx, const Array& g, const Array& y, bool log) {
  const Array out = dx.contiguous() ? dx : empty_like(dx);
  with_float_type(dx.dtype(), [&](auto t) {
    softmax_grad_as<typename decltype(t)::type>(rows_of(out), rows_of(g), rows_of(y), log);
  });
  if (!dx.contiguous()) copy(dx, out);
}

void CpuBackend::cross_entropy(const CrossEntropy& o) {
  const Array x = o.x.to_contiguous();
  check_index(o.target, 0, x.size(x.dim() - 1), {"cross_entropy", "target"}, o.ignored);
  with_float_type(x.dtype(), [&](auto t) {
    using S = typename decltype(t)::type;
    const int64_t classes = x.size(x.dim() - 1), rows = o.target.numel();
    const Classes<S> all{o, classes};
    if (classes > kLanes || classes == 0) return cross_entropy_as(all, x);
    const int64_t blocks = (rows + kLanes - 1) / kLanes;
    parallel_ranges(blocks, grain(blocks, kLanes * classes), [&](int64_t begin, int64_t end) {
      for (int64_t first = begin * kLanes; first < std::min(rows, end * kLanes); first += kLanes)
        cross_entropy_of_few(all, x, first, std::min<int64_t>(kLanes, rows - first));
    });
  });
  if (o.mean.defined()) mean_unfused(*this, o);
}

}  // namespace halftape::cpu
