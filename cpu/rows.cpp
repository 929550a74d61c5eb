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
      const S shift = std::log(total);
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

template <class S>
void cross_entropy_as(const CrossEntropy& o, const Array& x) {
  const auto* target = o.target.data<int64_t>();
  const S* weight = o.weight.defined() ? o.weight.data<S>() : nullptr;
  S *loss = o.loss.data<S>(), *counted = o.counted.defined() ? o.counted.data<S>() : nullptr;
  const int64_t C = x.size(x.dim() - 1);
  const auto each = static_cast<S>(o.smoothing / static_cast<double>(C));
  const auto weight_of = [weight](int64_t c) { return weight ? weight[c] : S(1); };
  const S all = sum_of<S>(C, weight_of);
  for_rows<S, 1>(o.grad.defined() ? rows_of(o.grad) : Array(), {rows_of(x)},
                 [&](int64_t row, std::array<S*, 2> rows, int64_t length, int64_t padded) {
                   S *out = rows[0], *in = rows[1];
                   const int64_t t = target[row];
                   const bool counts = t != o.ignored;
                   const S w = counts ? weight_of(t) : S(0);
                   if (counted) counted[row] = w;
                   if (!counts) {
                     loss[row] = 0;
                     std::fill(out, out + padded, S(0));
                     return;
                   }
                   const Exponentials<S> e(out, in, length, padded);
                   const S shift = std::log(e.total), hard = static_cast<S>(1 - o.smoothing) * w;
                   const auto lost = [&](int64_t c) { return shift - (in[c] - e.top); };  // −ln p
                   loss[row] = hard * lost(t);
                   if (o.smoothing != 0)
                     loss[row] +=
                         each * sum_of<S>(C, [&](int64_t c) { return weight_of(c) * lost(c); });
                   if (!o.grad.defined()) return;
                   const S factor = (hard + each * all) / e.total;
                   for (int64_t i = 0; i < padded; i += kLanes) at(out, i) = at(out, i) * factor;
                   if (o.smoothing != 0)
                     for (int64_t c = 0; c < C; ++c) out[c] -= each * weight_of(c);
                   out[t] -= hard;
                 });
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
  with_float_type(x.dtype(), [&](auto t) { cross_entropy_as<typename decltype(t)::type>(o, x); });
  if (o.mean.defined()) mean_unfused(*this, o);
}

}  // namespace halftape::cpu
