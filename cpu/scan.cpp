// Running reductions along a dimension: one element after the other, so that the order is the
// definition's; lines beside one another run at once.
#include "halftape/core/formula/reduce.h"

#include "halftape/cpu/cpu_backend.h"
#include "halftape/cpu/vector/loop.h"

namespace halftape::cpu {
namespace {

/// A contiguous array as (outer, count, inner), scanned along the middle.
struct Lines {
  int64_t outer = 1, count = 1, inner = 1;
  Lines(const Shape& shape, int dim) {
    for (int d = 0; d < shape.size(); ++d) (d < dim ? outer : d == dim ? count : inner) *= shape[d];
  }
};

template <class Op, class S>
void scan_lines(const Lines& l, const Array& y, const Array& x, bool reverse) {
  const Load<S> read = loader<S>(x.dtype());
  const Store<S> write = storer<S>(y.dtype());
  const auto from_item = static_cast<int64_t>(element_size(x.dtype())),
             to_item = static_cast<int64_t>(element_size(y.dtype()));
  const char* from = static_cast<const char*>(x.raw());
  char* to = static_cast<char*>(y.raw());
  const int64_t groups = (l.inner + kLanes - 1) / kLanes;
  parallel_for(l.outer * groups, [&](int64_t task) {
    const int64_t column = task % groups * kLanes, row = task / groups * l.count;
    const int n = static_cast<int>(std::min<int64_t>(kLanes, l.inner - column));
    Chunk<S> acc(Op::template start<S>()), v;
    for (int64_t i = 0; i < l.count; ++i) {
      const int64_t at = (row + (reverse ? l.count - 1 - i : i)) * l.inner + column;
      read(from + at * from_item, 1, n, v.v);
      for (int k = 0; k < n; ++k) acc.v[k] = Op::step(acc.v[k], v.v[k]);
      write(acc.v, n, to + at * to_item, 1);
    }
  });
}

/// The last dimension: chunks are read and written whole, and folded within.
template <class Op, class S>
void scan_rows(const Lines& l, const Array& y, const Array& x, bool reverse) {
  const Load<S> read = loader<S>(x.dtype());
  const Store<S> write = storer<S>(y.dtype());
  const auto from_item = static_cast<int64_t>(element_size(x.dtype())),
             to_item = static_cast<int64_t>(element_size(y.dtype()));
  const int64_t grain = std::max<int64_t>(1, 8192 / std::max<int64_t>(1, l.count));
  parallel_ranges(l.outer, grain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const char* from = static_cast<const char*>(x.raw()) + r * l.count * from_item;
      char* to = static_cast<char*>(y.raw()) + r * l.count * to_item;
      S acc = Op::template start<S>();
      Chunk<S> v;
      for (int64_t i = 0; i < l.count; i += kLanes) {
        const int n = static_cast<int>(std::min<int64_t>(kLanes, l.count - i));
        const int64_t at = reverse ? l.count - i - n : i;
        read(from + at * from_item, 1, n, v.v);
        for (int k = 0; k < n; ++k) {
          S& slot = v.v[reverse ? n - 1 - k : k];
          slot = acc = Op::step(acc, slot);
        }
        write(v.v, n, to + at * to_item, 1);
      }
    }
  });
}

template <class Op, class S>
void scan_as(const Lines& l, const Array& y, const Array& x, bool reverse) {
  if (l.inner == 1)
    scan_rows<Op, S>(l, y, x, reverse);
  else
    scan_lines<Op, S>(l, y, x, reverse);
}

}  // namespace

void CpuBackend::scan(OpId op, const Array& y, const Array& x, int dim, bool reverse) {
  if (y.numel() == 0) return;
  const Array in = x.to_contiguous(), out = y.contiguous() ? y : empty_like(y);
  const Lines lines(x.shape(), dim);
  auto go = [&](auto t) {
    using S = typename decltype(t)::type;
    constexpr auto table =
        ReduceOps::table([](auto o) { return &scan_as<typename decltype(o)::type, S>; });
    table[static_cast<size_t>(op)](lines, out, in, reverse);
  };
  // A chain of n additions in float would lose log2(n) digits; in double it does not matter.
  if (is_floating_point(promote(x.dtype(), y.dtype())))
    go(Type<double>{});
  else
    go(Type<int64_t>{});
  if (!y.contiguous()) copy(y, out);
}

}  // namespace halftape::cpu
