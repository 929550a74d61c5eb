// Softmax along the last dimension: statistics in float (double), one pass over a row that stays in
// cache.
#include <cmath>

#include "halftape/cpu/cascade.h"
#include "halftape/cpu/kernels.h"
#include "halftape/cpu/rows.h"

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
                   Chunk<S> acc(S(0));
                   for (int64_t i = 0; i < padded; i += kLanes)
                     acc = acc + (log ? at(gradient, i) : at(gradient, i) * at(value, i));
                   const S total = combine_lanes<formula::Sum>(acc);
                   for (int64_t i = 0; i < padded; i += kLanes)
                     at(out, i) = log ? at(gradient, i) - exp(at(value, i)) * total
                                      : at(value, i) * (at(gradient, i) - total);
                 });
}

}  // namespace

void softmax(const Array& y, const Array& x, bool log) {
  const Array out = y.contiguous() ? y : empty_like(y);
  if (y.dtype() == kFloat64)
    softmax_as<double>(rows_of(out), rows_of(x), log);
  else
    softmax_as<float>(rows_of(out), rows_of(x), log);
  if (!y.contiguous()) copy(y, out);
}

void softmax_grad(const Array& dx, const Array& g, const Array& y, bool log) {
  const Array out = dx.contiguous() ? dx : empty_like(dx);
  if (dx.dtype() == kFloat64)
    softmax_grad_as<double>(rows_of(out), rows_of(g), rows_of(y), log);
  else
    softmax_grad_as<float>(rows_of(out), rows_of(g), rows_of(y), log);
  if (!dx.contiguous()) copy(dx, out);
}

}  // namespace halftape::cpu
