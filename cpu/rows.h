// Rows, one after the other, in buffers of whole chunks: read once, worked on in cache, written
// once.
#pragma once
#include <limits>

#include "halftape/cpu/runtime/allocator.h"
#include "halftape/cpu/vector/cascade.h"
#include "halftape/cpu/vector/loop.h"

namespace halftape::cpu {

/// The rows of the last dimension, in the form that for_rows() takes: (rows, 1, length).
inline Array rows_of(const Array& a) {
  const int64_t length = a.dim() ? a.size(a.dim() - 1) : 1;
  return a.to_contiguous().reshape({length ? a.numel() / length : 0, 1, length});
}

/// Calls f(row, lanes, length, length in whole chunks) for every row. lanes[0] is written to y,
/// unless y is undefined; the others hold the inputs, which f may only read, and beyond their
/// length anything, which f may write. Arrays are (rows, pieces, elements of a piece), the elements
/// side by side. Each `together` rows are one thread's, in order.
template <class S, size_t N, class F>
void for_rows(const Array& y, const std::array<Array, N>& inputs, const F& f,
              int64_t together = 1) {
  const int64_t count = inputs[0].size(0), length = inputs[0].size(1) * inputs[0].size(2);
  const int64_t padded = (length + kLanes - 1) / kLanes * kLanes;
  struct Rows {
    char* begin = nullptr;
    int64_t step = 0;    // bytes from one row to the next
    bool lanes = false;  // whole chunks of S, side by side, are lanes already
  };
  std::array<Rows, N + 1> all;  // y's first
  const auto rows_in = [&](const Array& a) {
    return Rows{static_cast<char*>(a.raw()),
                a.strides()[0] * static_cast<int64_t>(element_size(a.dtype())),
                a.dtype() == dtype_of<S> && a.size(1) == 1 && length == padded};
  };
  if (y.defined()) all[0] = rows_in(y);
  for (size_t a = 0; a < N; ++a) {
    all[a + 1] = rows_in(inputs[a]);
    if (y.defined() && inputs[a].buffer() == y.buffer()) all[0].lanes = false;
  }
  // g(piece's address, its elements in the row's buffer, how many).
  const auto each_piece = [](const Array& a, char* at, S* buffer, const auto& g) {
    const int64_t step = a.strides()[1] * static_cast<int64_t>(element_size(a.dtype()));
    for (int64_t p = 0; p < a.size(1); ++p, at += step, buffer += a.size(2))
      g(at, buffer, a.size(2));
  };
  const auto work = [&](int64_t begin, int64_t end) {
    const int64_t room = padded + kLanes;  // a piece's last chunk may reach beyond the row
    const Scratch<S> scratch(room * static_cast<int64_t>(N + 1));
    std::array<S*, N + 1> rows;
    for (size_t a = 0; a <= N; ++a) rows[a] = scratch.data() + static_cast<int64_t>(a) * room;
    for (int64_t r = begin; r < end; ++r) {
      for (size_t a = 0; a <= N; ++a) {
        char* const memory = all[a].begin + r * all[a].step;
        if (all[a].lanes)
          rows[a] = reinterpret_cast<S*>(memory);
        else if (a > 0)
          each_piece(inputs[a - 1], memory, rows[a], [&](const char* from, S* to, int64_t n) {
            loader<S>(inputs[a - 1].dtype())(from, 1, n, to);
          });
      }
      f(r, rows, length, padded);
      if (y.defined() && !all[0].lanes)
        each_piece(
            y, all[0].begin + r * all[0].step, rows[0],
            [&](char* to, const S* from, int64_t n) { storer<S>(y.dtype())(from, n, to, 1); });
    }
  };
  parallel_ranges(count, (grain(count, length) + together - 1) / together * together, work);
}

/// out ← e^(in − top) of a row, where top is its largest element; total is the sum. The padding
/// adds nothing.
template <class S>
struct Exponentials {
  S top, total;
  Exponentials(S* out, S* in, int64_t length, int64_t padded) {
    for (int64_t i = length; i < padded; ++i)
      in[i] = -std::numeric_limits<S>::infinity();  // adds e^−∞ = 0
    top = joined<formula::Max, S>([=](const auto& add) {
      for (int64_t i = 0; i < padded; i += kLanes) add(at(in, i));
    });
    Running<formula::Sum, S> sum;
    for (int64_t i = 0; i < padded; i += kLanes) {
      at(out, i) = each(at(in, i) - top, [](S x) { return math::power_of_e(x); });
      // A row of −∞ is NaN throughout; its padding must not matter either way.
      sum.add(at(out, i));
    }
    total = sum.total();
  }
};

}  // namespace halftape::cpu
