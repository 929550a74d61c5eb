// Reductions in a fixed order: it depends on the shape and the reduced dimensions alone.
#include "halftape/core/formula/reduce.h"

#include "halftape/cpu/cpu_backend.h"
#include "halftape/cpu/runtime/allocator.h"
#include "halftape/cpu/vector/cascade.h"
#include "halftape/cpu/vector/loop.h"

namespace halftape::cpu {
namespace {

constexpr int64_t kBlock = 4096;  // elements of a partial result

/// Kept dimensions first, reduced ones last, each group flattened: x as a row-major (outer, count)
/// matrix.
struct Matrix {
  int64_t outer = 1, count = 1;
  Array rows;  // contiguous; when `by_column`, (count, outer) instead
  bool by_column = false;
};

Matrix as_matrix(const Array& x, const Dims& dims) {
  Dims kept, order;
  Matrix m;
  for (int d = 0; d < x.dim(); ++d) {
    if (dims.contains(d)) {
      m.count *= x.size(d);
    } else {
      kept.push_back(d);
      m.outer *= x.size(d);
    }
  }
  // Reduced dimensions in front (a sum over a batch): keep them there and add whole rows, which are
  // contiguous.
  m.by_column = !dims.empty() && !kept.empty() && dims.back() < kept.front();
  for (int64_t d : m.by_column ? dims : kept) order.push_back(d);
  for (int64_t d : m.by_column ? kept : dims) order.push_back(d);
  m.rows = x.permute(order).to_contiguous();
  return m;
}

/// One block of at most kBlock consecutive elements: 32 running results, joined by a tree.
template <class Op, class S>
S reduce_block(char* x, Lanes<S>& lanes, int64_t n) {
  return joined<Op, S>([=, &lanes](const auto& add) {
    char* from = x;
    for (int64_t rest = n, m; rest > 0; rest -= m, from += m * lanes.item()) {
      m = Lanes<S>::block(rest);
      S* v = lanes.read(from, 1, m);
      if (m < kLanes) std::fill(v + m, v + kLanes, Op::template start<S>());  // changes nothing
      for (int64_t i = 0; i < m; i += kLanes) add(at(v, i));
    }
  });
}

/// Joins n results of blocks: pairs of neighbours until one is left, so that the error grows with
/// the logarithm of n.
template <class Op, class S>
S join_blocks(S* p, int64_t n) {
  for (; n > 1; n = (n + 1) / 2)
    for (int64_t j = 0; j < (n + 1) / 2; ++j)
      p[j] = 2 * j + 1 < n ? Op::step(p[2 * j], p[2 * j + 1]) : p[2 * j];
  return p[0];
}

/// acc ← op(acc, row) for so many rows of n elements, whole chunks, `pitch` apart.
template <class Op, class S>
void step_rows(S* acc, const S* x, int64_t pitch, int64_t rows, int64_t n) {
  constexpr int64_t kTogether = 4;
  for (; rows >= kTogether; rows -= kTogether, x += kTogether * pitch)
    for (int64_t i = 0; i < n; i += kLanes) {
      Chunk<S> sum = at(acc, i);
      for (int64_t r = 0; r < kTogether; ++r) step_chunk<Op>(sum, at(x + r * pitch, i));
      at(acc, i) = sum;
    }
  for (; rows > 0; --rows, x += pitch)
    for (int64_t i = 0; i < n; i += kLanes) step_chunk<Op>(at(acc, i), at(x, i));
}

/// 32 columns of so many rows, `pitch` apart, joined by a Cascade.
template <class Op, class S>
Chunk<S> join_rows(const S* x, int64_t pitch, int64_t rows) {
  Cascade<Op, S> sums;
  for (int64_t r = 0; r < rows; ++r) sums.add(at(x + r * pitch, 0));
  return sums.total();
}

/// What is particular to an op; the walks below are compiled once for each S.
template <class S>
struct Steps {
  S (*start)();
  S (*reduce_block)(char* x, Lanes<S>& lanes, int64_t n);
  S (*join_blocks)(S* p, int64_t n);
  void (*step_rows)(S* acc, const S* x, int64_t pitch, int64_t rows, int64_t n);
  Chunk<S> (*join_rows)(const S* x, int64_t pitch, int64_t rows);
};
template <class S>
constexpr auto steps_table = ReduceOps::table([](auto o) {
  using Op = typename decltype(o)::type;
  return Steps<S>{&Op::template start<S>, &reduce_block<Op, S>, &join_blocks<Op, S>,
                  &step_rows<Op, S>, &join_rows<Op, S>};
});

template <class S>
void reduce_rows(const Steps<S>& op, const Matrix& m, const Array& y) {
  const Store<S> write = storer<S>(y.dtype());
  const auto item = static_cast<int64_t>(element_size(m.rows.dtype())),
             out = static_cast<int64_t>(element_size(y.dtype()));
  char* x = static_cast<char*>(m.rows.raw());
  char* to = static_cast<char*>(y.raw());
  const int64_t blocks = std::max<int64_t>(1, (m.count + kBlock - 1) / kBlock);
  const Scratch<S> scratch(m.outer * blocks);
  S* partial = scratch.data();
  parallel_ranges(m.outer * blocks, grain(m.outer * blocks, std::min(m.count, kBlock)),
                  [&](int64_t begin, int64_t end) {
                    Lanes<S> lanes(m.rows.dtype());
                    for (int64_t j = begin; j < end; ++j) {
                      const int64_t row = blocks == 1 ? j : j / blocks;  // divisions are dear
                      const int64_t start = (j - row * blocks) * kBlock;
                      partial[j] = op.reduce_block(x + (row * m.count + start) * item, lanes,
                                                   std::min(kBlock, m.count - start));
                    }
                  });
  for (int64_t r = 0; r < m.outer && blocks > 1; ++r) {
    const S all = op.join_blocks(partial + r * blocks, blocks);
    write(&all, 1, to + r * out, 1);
  }
  if (blocks == 1) write(partial, m.outer, to, 1);
}

/// Sums down the columns of a (count, outer) matrix: rows are added in blocks of 128, which are
/// then joined. Memory is read in the order in which it lies, in strips of columns.
template <class S>
void reduce_columns(const Steps<S>& op, const Matrix& m, const Array& y) {
  constexpr int64_t kRows = 128, kStrip = 2048, kCopied = 8;
  const Load<S> read = loader<S>(m.rows.dtype());
  const Store<S> write = storer<S>(y.dtype());
  const auto item = static_cast<int64_t>(element_size(m.rows.dtype())),
             out = static_cast<int64_t>(element_size(y.dtype()));
  const char* x = static_cast<const char*>(m.rows.raw());
  char* to = static_cast<char*>(y.raw());
  const int64_t padded = (m.outer + kLanes - 1) / kLanes * kLanes;
  const int64_t strips = (m.outer + kStrip - 1) / kStrip, blocks = (m.count + kRows - 1) / kRows;
  const bool in_place = m.rows.dtype() == dtype_of<S> && m.outer == padded;
  const Scratch<S> scratch(blocks * padded);
  S* partial = scratch.data();
  parallel_tasks(strips * blocks, m.outer * m.count, [&](int64_t task) {
    const int64_t column = task % strips * kStrip, n = std::min(kStrip, m.outer - column);
    const int64_t whole = (n + kLanes - 1) / kLanes * kLanes;
    const int64_t start = task / strips * kRows, end = std::min(m.count, start + kRows);
    S* acc = partial + task / strips * padded + column;
    std::fill_n(acc, whole, op.start());
    const char* from = x + (start * m.outer + column) * item;
    if (in_place)
      return op.step_rows(acc, reinterpret_cast<const S*>(from), m.outer, end - start, whole);
    const Scratch<S> copy(kCopied * whole);
    for (int64_t r = start; r < end; r += kCopied) {
      const int64_t count = std::min(kCopied, end - r);
      if (m.outer == whole) {  // rows without padding lie side by side in the copy, too
        read(from, 1, count * n, copy.data());
        from += count * n * item;
      } else {
        for (int64_t i = 0; i < count; ++i, from += m.outer * item)
          read(from, 1, n, copy.data() + i * whole);
      }
      op.step_rows(acc, copy.data(), whole, count, whole);
    }
  });
  for (int64_t column = 0; column < m.outer; column += kLanes) {
    const Chunk<S> total = op.join_rows(partial + column, padded, blocks);
    write(total.v, std::min<int64_t>(kLanes, m.outer - column), to + column * out, 1);
  }
}

}  // namespace

void CpuBackend::reduce(OpId op, const Array& y, const Array& x, const Dims& dims) {
  if (y.numel() == 0) return;
  const Matrix m = as_matrix(x, dims);
  const Array out = y.contiguous() ? y : empty_like(y);
  with_compute_type(promote(x.dtype(), y.dtype()), [&](auto t) {
    using S = typename decltype(t)::type;
    const Steps<S>& steps = steps_table<S>[static_cast<size_t>(op)];
    m.by_column ? reduce_columns(steps, m, out) : reduce_rows(steps, m, out);
  });
  if (!y.contiguous()) copy(y, out);
}

namespace {

/// Position of the first element better than all before it, or of the first NaN.
template <class Better>
void arg_extremum_as(const Array& y, const Array& x, int dim, Better better) {
  if (y.numel() == 0) return;
  const Matrix m = [&] {
    Matrix rows = as_matrix(x, {dim});
    if (!rows.by_column) return rows;
    rows.rows = rows.rows.reshape({rows.count, rows.outer}).transpose(0, 1).to_contiguous();
    rows.by_column = false;
    return rows;
  }();
  const Array out = y.contiguous() ? y : empty_like(y);
  int64_t* at = out.data<int64_t>();
  const auto search = [&](auto t) {
    using C = typename decltype(t)::type;
    parallel_ranges(m.outer, grain(m.outer, m.count), [&](int64_t begin, int64_t end) {
      Lanes<C> lanes(x.dtype());
      for (int64_t r = begin; r < end; ++r) {
        char* row = static_cast<char*>(m.rows.raw()) + r * m.count * lanes.item();
        int64_t best = 0;
        C top = 0;
        for (int64_t j = 0, n; j < m.count; j += n, row += n * lanes.item()) {
          n = Lanes<C>::block(m.count - j);
          const C* v = lanes.read(row, 1, n);
          if (j == 0) top = v[0];
          for (int64_t k = 0; k < n && top == top; ++k)
            if (better(v[k], top) || v[k] != v[k]) top = v[k], best = j + k;
        }
        at[r] = best;
      }
    });
  };
  if (is_floating_point(x.dtype()))
    search(Type<double>{});
  else
    search(Type<int64_t>{});
  if (!y.contiguous()) copy(y, out);
}

}  // namespace

void CpuBackend::arg_extremum(const Array& y, const Array& x, int dim, bool least) {
  if (least)
    arg_extremum_as(y, x, dim, [](auto a, auto b) { return a < b; });
  else
    arg_extremum_as(y, x, dim, [](auto a, auto b) { return a > b; });
}

}  // namespace halftape::cpu
