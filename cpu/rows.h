// Rows, one after the other, in buffers of whole chunks: read once, worked on in cache, written
// once.
#pragma once
#include <limits>

#include "halftape/cpu/allocator.h"
#include "halftape/cpu/cascade.h"
#include "halftape/cpu/loop.h"

namespace halftape::cpu {

/// The rows of the last dimension, in the form that for_rows() takes: (rows, 1, length).
inline Array rows_of(const Array& a) {
  const int64_t length = a.dim() ? a.size(a.dim() - 1) : 1;
  return a.to_contiguous().reshape({length ? a.numel() / length : 0, 1, length});
}

/// f(row's number, buffers, length, length in whole chunks) over all rows: the first buffer is
/// written to y, unless y is undefined; the others hold the inputs, and anything beyond their
/// length. Arrays are (rows, pieces, elements of a piece), with neighbours side by side.
template <class S, size_t N, class F>
void for_rows(const Array& y, const std::array<Array, N>& inputs, const F& f) {
  const int64_t count = inputs[0].size(0), length = inputs[0].size(1) * inputs[0].size(2);
  const int64_t padded = (length + kLanes - 1) / kLanes * kLanes;
  // g(piece's address, its elements in the row's buffer, how many).
  const auto each_piece = [](const Array& a, int64_t row, S* buffer, const auto& g) {
    const auto item = static_cast<int64_t>(element_size(a.dtype()));
    char* at = static_cast<char*>(a.raw()) + row * a.strides()[0] * item;
    for (int64_t p = 0; p < a.size(1); ++p, at += a.strides()[1] * item, buffer += a.size(2))
      g(at, buffer, a.size(2));
  };
  const auto work = [&](int64_t begin, int64_t end) {
    const int64_t room = padded + kLanes;  // a piece's last chunk may reach beyond the row
    const Scratch scratch(static_cast<size_t>(room) * (N + 1) * sizeof(S));
    std::array<S*, N + 1> rows;
    for (size_t a = 0; a <= N; ++a) rows[a] = scratch.as<S>() + static_cast<int64_t>(a) * room;
    for (int64_t r = begin; r < end; ++r) {
      for (size_t a = 0; a < N; ++a) {
        const Load<S> read = loader<S>(inputs[a].dtype());
        each_piece(inputs[a], r, rows[a + 1],
                   [read](const char* from, S* to, int64_t n) { read(from, 1, n, to); });
      }
      f(r, rows, length, padded);
      if (!y.defined()) continue;
      const Store<S> write = storer<S>(y.dtype());
      each_piece(y, r, rows[0],
                 [write](char* to, const S* from, int64_t n) { write(from, n, to, 1); });
    }
  };
  parallel_ranges(count, grain(count, length), work);
}

/// out ← e^(in − top) of a row, whose padding adds nothing; `top` is its largest element, `total`
/// the sum.
template <class S>
struct Exponentials {
  S top, total;
  Exponentials(S* out, S* in, int64_t length, int64_t padded) {
    for (int64_t i = length; i < padded; ++i)
      in[i] = -std::numeric_limits<S>::infinity();  // adds e^−∞ = 0
    Chunk<S> acc(-std::numeric_limits<S>::infinity());
    for (int64_t i = 0; i < padded; i += kLanes) step_chunk<formula::Max>(acc, at(in, i));
    top = combine_lanes<formula::Max>(acc);
    acc = Chunk<S>(S(0));
    for (int64_t i = 0; i < padded; i += kLanes) {
      at(out, i) = exp(at(in, i) - top);
      // A row of −∞ is NaN throughout; its padding must not matter either way.
      acc = acc + at(out, i);
    }
    total = combine_lanes<formula::Sum>(acc);
  }
};

}  // namespace halftape::cpu
