// Softmax along the last dimension: statistics in float (double), one pass over a row that stays in
// cache.
#include <limits>

#include "halftape/cpu/allocator.h"
#include "halftape/cpu/kernels.h"
#include "halftape/cpu/loop.h"

namespace halftape::cpu {
namespace {

/// Sum of a row in the order of 32 lanes and a tree, as in reduce.cpp.
template <class S>
S sum_lanes(Chunk<S> acc) {
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int k = 0; k < half; ++k) acc.v[k] += acc.v[k + half];
  return acc.v[0];
}

/// f(row index, buffers of whole chunks) over all rows. Inputs are read as S, padded with `pad` to
/// whole chunks.
template <class S, size_t N, class F>
void for_rows(const Array& y, const std::array<Array, N>& inputs, const F& f) {
  const int64_t length = y.dim() ? y.size(y.dim() - 1) : 1, count = length ? y.numel() / length : 0;
  const int64_t padded = (length + kLanes - 1) / kLanes * kLanes;
  const Store<S> write = storer<S>(y.dtype());
  const auto out = static_cast<int64_t>(element_size(y.dtype()));
  parallel_ranges(
      count, std::max<int64_t>(1, 8192 / std::max<int64_t>(1, length)),
      [&](int64_t begin, int64_t end) {
        const Scratch scratch(static_cast<size_t>(padded) * (N + 1) * sizeof(S));
        std::array<S*, N + 1> rows;
        for (size_t a = 0; a <= N; ++a)
          rows[a] = scratch.as<S>() + static_cast<int64_t>(a) * padded;
        for (int64_t r = begin; r < end; ++r) {
          for (size_t a = 0; a < N; ++a) {
            const Load<S> read = loader<S>(inputs[a].dtype());
            const auto item = static_cast<int64_t>(element_size(inputs[a].dtype()));
            const char* from = static_cast<const char*>(inputs[a].raw()) + r * length * item;
            for (int64_t i = 0; i < length; i += kLanes)
              read(from + i * item, 1, static_cast<int>(std::min<int64_t>(kLanes, length - i)),
                   rows[a + 1] + i);
          }
          f(rows, length, padded);
          char* to = static_cast<char*>(y.raw()) + r * length * out;
          for (int64_t i = 0; i < length; i += kLanes)
            write(rows[0] + i, static_cast<int>(std::min<int64_t>(kLanes, length - i)),
                  to + i * out, 1);
        }
      });
}

template <class S>
Chunk<S>& at(S* row, int64_t i) {
  return *reinterpret_cast<Chunk<S>*>(row + i);
}

template <class S>
void softmax_as(const Array& y, const Array& x, bool log) {
  for_rows<S, 1>(y, {x}, [log](std::array<S*, 2> rows, int64_t length, int64_t padded) {
    S *out = rows[0], *in = rows[1];
    for (int64_t i = length; i < padded; ++i)
      in[i] = -std::numeric_limits<S>::infinity();  // adds e^−∞ = 0
    S top = in[0];
    for (int64_t i = 1; i < length; ++i) top = top != top || top > in[i] ? top : in[i];
    Chunk<S> acc(S(0));
    for (int64_t i = 0; i < padded; i += kLanes) {
      at(out, i) = exp(at(in, i) - top);
      // A row of −∞ is NaN throughout; its padding must not matter either way.
      acc = acc + at(out, i);
    }
    const S total = sum_lanes(acc);
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
  for_rows<S, 2>(dx, {g, y}, [log](std::array<S*, 3> rows, int64_t length, int64_t padded) {
    S *out = rows[0], *gradient = rows[1], *value = rows[2];
    for (int64_t i = length; i < padded; ++i) gradient[i] = 0, value[i] = 0;
    Chunk<S> acc(S(0));
    for (int64_t i = 0; i < padded; i += kLanes)
      acc = acc + (log ? at(gradient, i) : at(gradient, i) * at(value, i));
    const S total = sum_lanes(acc);
    for (int64_t i = 0; i < padded; i += kLanes)
      at(out, i) = log ? at(gradient, i) - exp(at(value, i)) * total
                       : at(value, i) * (at(gradient, i) - total);
  });
}

}  // namespace

void softmax(const Array& y, const Array& x, bool log) {
  const Array in = x.to_contiguous(), out = y.contiguous() ? y : empty_like(y);
  if (y.dtype() == kFloat64)
    softmax_as<double>(out, in, log);
  else
    softmax_as<float>(out, in, log);
  if (!y.contiguous()) copy(y, out);
}

void softmax_grad(const Array& dx, const Array& g, const Array& y, bool log) {
  const Array gradient = g.to_contiguous(), value = y.to_contiguous();
  const Array out = dx.contiguous() ? dx : empty_like(dx);
  if (dx.dtype() == kFloat64)
    softmax_grad_as<double>(out, gradient, value, log);
  else
    softmax_grad_as<float>(out, gradient, value, log);
  if (!dx.contiguous()) copy(dx, out);
}

}  // namespace halftape::cpu
