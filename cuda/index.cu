// Gather and scatter along one dimension, in a fixed order; positions from index arrays. The thread
// that uses an index checks it: an index out of range is reported to the host and touches nothing.
#include "halftape/core/formula/reduce.h"
#include "halftape/cuda/cuda_backend.h"
#include "halftape/cuda/vector/index_check.cuh"
#include "halftape/cuda/vector/map.cuh"
#include "halftape/cuda/vector/runs.cuh"

namespace halftape::cuda {
namespace {

/// The addresses that an index connects: element i of `near`, which has the index's shape, and the
/// element of `far` at position index[i] along `dim`. A head is an element of `dim` and of the
/// dimensions along which the index varies. Its row covers the other dimensions, whose elements all
/// have one index: the heads of an embedding are its tokens.
struct Hops {
  enum { Near, Far, Index };
  Layout<3> head;  // far at 0 along dim
  Layout<2> row;
  int64_t reach;  // bytes between neighbours of far along dim
  int64_t n;      // the index's size along dim
  int64_t inner;  // heads from one position along dim to the next
  bool repeats;   // the index has stride 0 along dim
  Range range;

  Hops(const Array& near, const Array& far, const Array& by, int dim, const Range& of)
      : head(heads(near, far, by, dim)),
        row(rows(near, far, by, dim)),
        reach(far.strides()[dim] * static_cast<int64_t>(element_size(far.dtype()))),
        n(by.size(dim)),
        inner(1),
        repeats(by.strides()[dim] == 0),
        range(of) {
    for (int d = dim + 1; d < by.dim(); ++d)
      if (by.strides()[d] != 0) inner *= by.size(d);
  }
  int64_t elements() const { return head.numel * row.numel; }

  /// Makes elements of 16 bytes if the rows allow it. Returns the size of an element.
  size_t widen() {
    const auto item = static_cast<int64_t>(element_size(head.dtype[Near]));
    const int last = row.rank - 1;
    int64_t all = reach | row.sizes[last] * item;
    for (int a : {Near, Far}) {
      if (row.strides[a][last] != item) return static_cast<size_t>(item);
      all |= static_cast<int64_t>(reinterpret_cast<uintptr_t>(head.base[a]));
      for (int d = 0; d < last; ++d) all |= row.strides[a][d];
      for (int d = 0; d < head.rank; ++d) all |= head.strides[a][d];
    }
    if (all % 16 != 0) return static_cast<size_t>(item);
    row.sizes[last] = row.sizes[last] * item / 16;
    row.numel = row.numel * item / 16;
    for (int a : {Near, Far}) row.strides[a][last] = 16;
    return 16;
  }

  __device__ int64_t index(int64_t h) const {
    char* at[3];
    head.locate(h, at);
    return *reinterpret_cast<const int64_t*>(at[Index]);
  }
  __device__ bool checked(int64_t value, int64_t h) const {
    if (range.contains(value)) return true;
    // RunLayout a dim where the index repeats, its positions count once.
    range.report(value, repeats ? h / (n * inner) * inner + h % inner : h);
    return false;
  }
  /// at ← the addresses of element r of the row of head h, near and far.
  __device__ void locate(int64_t h, int64_t r, int64_t value, char* (&at)[2]) const {
    char* start[3];
    head.locate(h, start);
    row.locate(r, at);
    at[Near] += start[Near] - head.base[Near];
    at[Far] += start[Far] - head.base[Far] + value * reach;
  }
  /// The number of the row of far that index `value` of head h selects.
  __device__ int64_t target(int64_t h, int64_t value) const {
    return (h / (n * inner) * range.limit + value) * inner + h % inner;
  }
  int64_t targets() const { return head.numel / n * range.limit; }

 private:
  static bool in_head(const Array& index, int dim, int d) {
    return d == dim || index.strides()[d] != 0;
  }
  static Layout<3> heads(const Array& near, const Array& far, const Array& index, int dim) {
    Shape shape = index.shape();
    for (int d = 0; d < index.dim(); ++d)
      if (!in_head(index, dim, d)) shape[d] = 1;
    Strides strides = far.strides();
    strides[dim] = 0;
    const Array a = near.as_strided(shape, near.strides(), near.offset());
    // No index is in range of an empty `far`, so no address in it is used.
    const Array b = far.numel() == 0 ? a : far.as_strided(shape, strides, far.offset());
    const Array i = index.as_strided(shape, index.strides(), index.offset());
    return Layout<3>({&a, &b, &i});
  }
  static Layout<2> rows(const Array& near, const Array& far, const Array& index, int dim) {
    Shape shape = index.shape();
    for (int d = 0; d < index.dim(); ++d)
      if (in_head(index, dim, d)) shape[d] = 1;
    const Array a = near.as_strided(shape, near.strides(), near.offset());
    const Array b = far.numel() == 0 ? a : far.as_strided(shape, far.strides(), far.offset());
    return Layout<2>({&a, &b});
  }
};

template <class T>
__global__ void gather_elements(Hops hops) {
  const int64_t count = hops.head.numel * hops.row.numel;
  for (int64_t i = thread_number(); i < count; i += thread_count()) {
    const Division at(i, hops.row.numel);
    const int64_t value = hops.index(at.quotient);
    if (!hops.checked(value, at.quotient)) continue;
    char* place[2];
    hops.locate(at.quotient, at.rest, value, place);
    *reinterpret_cast<T*>(place[Hops::Near]) = *reinterpret_cast<const T*>(place[Hops::Far]);
  }
}

/// winner[target] ← the last head with this target.
__global__ void elect_last(Hops hops, long long* winner) {
  for (int64_t h = thread_number(); h < hops.head.numel; h += thread_count()) {
    const int64_t value = hops.index(h);
    if (hops.checked(value, h))
      atomicMax(winner + hops.target(h, value), static_cast<long long>(h));
  }
}

template <class T>
__global__ void scatter_winners(Hops hops, const long long* winner) {
  const int64_t count = hops.head.numel * hops.row.numel;
  for (int64_t i = thread_number(); i < count; i += thread_count()) {
    const Division at(i, hops.row.numel);
    const int64_t value = hops.index(at.quotient);
    if (!hops.range.contains(value) || winner[hops.target(at.quotient, value)] != at.quotient)
      continue;
    char* place[2];
    hops.locate(at.quotient, at.rest, value, place);
    *reinterpret_cast<T*>(place[Hops::Far]) = *reinterpret_cast<const T*>(place[Hops::Near]);
  }
}

/// target[h] ← the target of head h; −1 if its index is out of range.
__global__ void number_targets(Hops hops, int64_t* target) {
  for (int64_t h = thread_number(); h < hops.head.numel; h += thread_count()) {
    const int64_t value = hops.index(h);
    target[h] = hops.checked(value, h) ? hops.target(h, value) : -1;
  }
}

/// A step of formula `op` of ReduceOps.
template <class S>
__device__ S step(OpId op, S sum, S x) {
  S y = sum;
  with_formula(ReduceOps{}, op, [&](auto o) { y = decltype(o)::type::step(sum, x); });
  return y;
}

/// Heads sorted by target: the thread at the first head of a target adds up all of the target's
/// terms, of type T, in their order, in S, and rounds once.
template <class S, class T>
__global__ void reduce_rows(Hops hops, OpId op, const int64_t* sorted, const int64_t* order) {
  constexpr int kAhead = 4;  // terms that are loaded before the first of them is added
  const int64_t heads = hops.head.numel, count = heads * hops.row.numel;
  for (int64_t i = thread_number(); i < count; i += thread_count()) {
    const Division at(i, hops.row.numel);
    const int64_t target = sorted[at.quotient];
    if (target < 0 || (at.quotient > 0 && sorted[at.quotient - 1] == target)) continue;
    int64_t end = heads;  // of the heads of this target
    for (int64_t low = at.quotient + 1; low < end;) {
      const int64_t middle = low + (end - low) / 2;
      if (sorted[middle] == target)
        low = middle + 1;
      else
        end = middle;
    }
    char* place[2];
    const auto term = [&](int64_t k) {
      hops.locate(order[k], at.rest, 0, place);
      return as<S>(*reinterpret_cast<const T*>(place[Hops::Near]));
    };
    hops.locate(order[at.quotient], at.rest, hops.index(order[at.quotient]), place);
    char* const to = place[Hops::Far];
    S sum = load<S>(to, hops.head.dtype[Hops::Far]);
    int64_t k = at.quotient;
    for (; end - k >= kAhead; k += kAhead) {
      S x[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) x[j] = term(k + j);
#pragma unroll
      for (int j = 0; j < kAhead; ++j) sum = step(op, sum, x[j]);
    }
    for (; k < end; ++k) sum = step(op, sum, term(k));
    store(to, hops.head.dtype[Hops::Far], sum);
  }
}

/// y ← y·size + index, or the index alone if `begin`. A negative index counts from the end.
__global__ void append_index(int64_t* y, Layout<1> index, bool begin, Range range) {
  for_elements(index, [&](int64_t i, char* const(&at)[1]) {
    int64_t value = *reinterpret_cast<const int64_t*>(at[0]);
    if (!range.contains(value)) {
      int64_t position = 0, step = 1, rest = i;
      for (int d = index.rank - 1; d >= 0; rest /= index.sizes[d--]) {
        if (index.strides[0][d] == 0) continue;
        position += rest % index.sizes[d] * step;
        step *= index.sizes[d];
      }
      range.report(value, position);
      value = 0;  // a valid address for later kernels
    }
    if (value < 0) value += range.limit;
    y[i] = begin ? value : y[i] * range.limit + value;
  });
}

/// Calls f(Type<S>{}, Type<T>{}) for sums in S of elements of T. 16-bit sums are kept in float and
/// rounded once; integers wrap when they are stored.
template <class F>
void with_sum_types(Dtype sum, Dtype element, F&& f) {
  if (sum == kInt64)
    f(Type<int64_t>{}, Type<int64_t>{});
  else if (sum == kFloat64)
    f(Type<double>{}, Type<double>{});
  else if (element == kFloat16)
    f(Type<float>{}, Type<Half>{});
  else if (element == kBFloat16)
    f(Type<float>{}, Type<BFloat16>{});
  else
    f(Type<float>{}, Type<float>{});
}

}  // namespace

void CudaBackend::gather(const Array& y, const Array& x, int dim, const Array& index,
                         IndexUse use) {
  if (index.numel() == 0) return;
  const Queue q = queue(y);
  Hops hops(y, x, index, dim, {0, x.size(dim), use, q.context.board()});
  with_bytes(hops.widen(), [&](auto t) {
    using T = typename decltype(t)::type;
    launch_for(q, hops.elements(), "gather", gather_elements<T>, hops);
  });
}

void CudaBackend::scatter(const Array& y, const Array& x, int dim, const Array& index,
                          IndexUse use) {
  if (index.numel() == 0) return;
  const Queue q = queue(y);
  Hops hops(x, y, index, dim, {0, y.size(dim), use, q.context.board()});
  const Array winner = full({hops.targets()}, -1, kInt64, y.device());
  auto* const last = static_cast<long long*>(winner.raw());
  launch_for(q, hops.head.numel, "scatter", elect_last, hops, last);
  with_bytes(hops.widen(), [&](auto t) {
    using T = typename decltype(t)::type;
    launch_for(q, hops.elements(), "scatter", scatter_winners<T>, hops, last);
  });
}

void CudaBackend::scatter_reduce(OpId op, const Array& y, const Array& g, int dim,
                                 const Array& index, IndexUse use) {
  if (index.numel() == 0) return;
  const Queue q = queue(y);
  const Dtype wide = compute_dtype(sum_dtype(y.dtype()));
  const Array terms = wide == kFloat32 && packs(g.dtype()) ? g : g.to(wide);
  const Hops hops(terms, y, index, dim, {0, y.size(dim), use, q.context.board()});
  const Array target({hops.head.numel}, kInt64, y.device());
  const Array order = empty_like(target), sorted = empty_like(target);
  launch_for(q, hops.head.numel, "scatter_reduce", number_targets, hops, target.data<int64_t>());
  argsort(order, target, 0, false);
  gather(sorted, target, 0, order, use);
  with_sum_types(wide, terms.dtype(), [&](auto s, auto t) {
    using S = typename decltype(s)::type;
    using T = typename decltype(t)::type;
    launch_for(q, hops.elements(), "scatter_reduce", reduce_rows<S, T>, hops, op,
               sorted.data<int64_t>(), order.data<int64_t>());
  });
}

void CudaBackend::flat_index(const Array& y, std::span<const Array> indices, const Shape& sizes,
                             IndexUse use) {
  if (y.numel() == 0) return;
  const Queue q = queue(y);
  for (size_t k = 0; k < indices.size(); ++k) {
    const int64_t size = sizes[static_cast<int>(k)];
    launch_for(q, y.numel(), "flat_index", append_index, y.data<int64_t>(),
               Layout<1>({&indices[k]}), k == 0, Range{-size, size, use, q.context.board()});
  }
}

}  // namespace halftape::cuda
