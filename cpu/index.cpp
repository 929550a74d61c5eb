// Gather and scatter in a fixed order; positions from index arrays and from masks.
#include <cstring>

#include "halftape/core/formula/reduce.h"
#include "halftape/cpu/cpu_backend.h"
#include "halftape/cpu/vector/loop.h"

namespace halftape::cpu {
namespace {

/// The walk along an index in row-major order: n neighbours that move together between an offset in
/// `far`, where the index says to go along `dim`, and one in `near`, which has the index's shape.
class Runs {
 public:
  Runs(const Array& index, const Array& far, int dim, const Array& near)
      : index_(index), far_(far), near_(near), dim_(dim) {
    const Shape& shape = index.shape();
    // An index that repeats along the last dimensions, as for whole rows, points to one piece.
    int last = shape.size();
    while (last - 1 > dim && (shape[last - 1] == 1 ||
                              (index.strides()[last - 1] == 0 && far.strides()[last - 1] == n_ &&
                               near.strides()[last - 1] == n_)))
      n_ *= shape[--last];
    inner_ = last - 1;
    for (int d = 0; d < last; ++d) count_ *= shape[d];
    if (n_ == 0) count_ = 0;
  }
  int64_t count() const { return count_; }
  int64_t length() const { return n_; }

  /// f(offset in far, offset in near) for the runs number begin … end − 1.
  template <class F>
  void each(int64_t begin, int64_t end, const F& f) const {
    const Shape& shape = index_.shape();
    const int64_t* number = index_.data<int64_t>();
    const int64_t reach = far_.strides()[dim_], step = index_.strides()[inner_],
                  far_step = inner_ == dim_ ? 0 : far_.strides()[inner_],
                  near_step = near_.strides()[inner_];
    for (int64_t r = begin; r < end;) {
      int64_t i = 0, to = 0, from = 0, rest = r / shape[inner_];
      for (int d = inner_ - 1; d >= 0; --d) {
        const int64_t at = rest % shape[d];
        rest /= shape[d];
        i += at * index_.strides()[d];
        to += d == dim_ ? 0 : at * far_.strides()[d];
        from += at * near_.strides()[d];
      }
      const int64_t first = r % shape[inner_], stop = std::min(shape[inner_], first + end - r);
      for (int64_t j = first; j < stop; ++j)
        f(to + number[i + j * step] * reach + j * far_step, from + j * near_step);
      r += stop - first;
    }
  }
  template <class F>
  void each(const F& f) const {
    each(0, count_, f);
  }

 private:
  const Array &index_, &far_, &near_;
  int dim_, inner_ = 0;
  int64_t n_ = 1, count_ = 1;
};

template <class T>
void move(T* to, const T* from, int64_t n) {
  if (n == 1)
    *to = *from;
  else
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(T));
}

/// to[k] ← op(to[k], from[k]) for k < n.
template <class Op, class T>
void take_in(T* to, const T* from, int64_t n) {
  for (int64_t k = 0; k < n; ++k) to[k] = Op::step(to[k], from[k]);
}

}  // namespace

void check_index(const Array& index, int64_t low, int64_t limit, IndexUse use,
                 std::optional<int64_t> exempt) {
  Array distinct = index;
  for (int d = 0; d < index.dim(); ++d)
    if (index.strides()[d] == 0) distinct = distinct.slice(d, 0, 1);
  const Array flat = distinct.to_contiguous();
  const int64_t* at = flat.data<int64_t>();
  const bool exempts = exempt.has_value();
  const int64_t other = exempt.value_or(0);
  int64_t wrong = 0;  // counted first, without branches
  for (int64_t i = 0; i < flat.numel(); ++i)
    wrong += ((at[i] < low) | (at[i] >= limit)) & !(exempts & (at[i] == other));
  if (wrong == 0) return;
  for (int64_t i = 0; i < flat.numel(); ++i)
    HALFTAPE_CHECK((at[i] >= low && at[i] < limit) || at[i] == exempt, use.op, ": ", use.argument,
                   " ", at[i], " at position ", i, " is out of range [", low, ", ", limit, ")");
}

void CpuBackend::gather(const Array& y, const Array& x, int dim, const Array& index, IndexUse use) {
  check_index(index, 0, x.size(dim), use);
  with_word(y.dtype(), [&](auto t) {
    using Word = typename decltype(t)::type;
    const auto* from = static_cast<const Word*>(x.raw());
    auto* to = static_cast<Word*>(y.raw());
    const Runs runs(index, x, dim, y);
    const int64_t n = runs.length();
    parallel_ranges(runs.count(), std::max<int64_t>(1, 16384 / std::max<int64_t>(n, 1)),
                    [&](int64_t begin, int64_t end) {
                      runs.each(begin, end,
                                [&](int64_t far, int64_t near) { move(to + near, from + far, n); });
                    });
  });
}

void CpuBackend::scatter(const Array& y, const Array& x, int dim, const Array& index,
                         IndexUse use) {
  check_index(index, 0, y.size(dim), use);
  with_word(y.dtype(), [&](auto t) {
    using Word = typename decltype(t)::type;
    const auto* from = static_cast<const Word*>(x.raw());
    auto* to = static_cast<Word*>(y.raw());
    const Runs runs(index, y, dim, x);
    runs.each([&](int64_t far, int64_t near) { move(to + far, from + near, runs.length()); });
  });
}

void CpuBackend::scatter_reduce(OpId op, const Array& y, const Array& g, int dim,
                                const Array& index, IndexUse use) {
  check_index(index, 0, y.size(dim), use);
  // 16-bit sums are kept in float and rounded once; whole numbers wrap when they are stored.
  const Dtype wide = compute_dtype(sum_dtype(y.dtype()));
  const Array sum = y.to(wide), add = g.to(wide).to_contiguous();
  with_compute_type(wide, [&](auto t) {
    using T = typename decltype(t)::type;
    constexpr auto table =
        ReduceOps::table([](auto o) { return &take_in<typename decltype(o)::type, T>; });
    T* to = sum.data<T>();
    const T* from = add.data<T>();
    const Runs runs(index, sum, dim, add);
    const int64_t n = runs.length();
    if (n == 1 && op == ReduceOps::index<formula::Sum>())  // as a gather's gradient: without calls
      return runs.each(
          [&](int64_t far, int64_t near) { to[far] = formula::Sum::step(to[far], from[near]); });
    const auto take = table[static_cast<size_t>(op)];
    runs.each([&](int64_t far, int64_t near) { take(to + far, from + near, n); });
  });
  if (wide != y.dtype()) copy(y, sum);
}

void CpuBackend::flat_index(const Array& y, std::span<const Array> indices, const Shape& sizes,
                            IndexUse use) {
  for (size_t k = 0; k < indices.size(); ++k)
    check_index(indices[k], -sizes[static_cast<int>(k)], sizes[static_cast<int>(k)], use);
  int64_t* out = y.data<int64_t>();
  std::fill(out, out + y.numel(), 0);
  for (size_t k = 0; k < indices.size(); ++k) {
    const Array flat = indices[k].to_contiguous();
    const int64_t* at = flat.data<int64_t>();
    const int64_t size = sizes[static_cast<int>(k)];
    for (int64_t i = 0; i < y.numel(); ++i)
      out[i] = out[i] * size + (at[i] < 0 ? at[i] + size : at[i]);
  }
}

void CpuBackend::nonzero(const Array& y, const Array& x) {
  const Array flat = x.to_contiguous();
  int64_t* out = y.data<int64_t>();
  visit(x.dtype(), [&](auto t) {
    using T = typename decltype(t)::type;
    const T* v = flat.data<T>();
    Dims at = Dims::filled(x.dim(), 0);
    for (int64_t i = 0; i < x.numel(); ++i) {
      if (convert<bool>(v[i])) out = std::copy(at.begin(), at.end(), out);
      for (int d = x.dim() - 1; d >= 0 && ++at[d] == x.size(d); --d) at[d] = 0;
    }
  });
}

}  // namespace halftape::cpu
