// The order that sorts each line of a dimension. Stable, so that it is the only one: the same for
// any thread count and algorithm.
#include <algorithm>

#include "halftape/cpu/cpu_backend.h"
#include "halftape/cpu/runtime/allocator.h"
#include "halftape/cpu/vector/loop.h"

namespace halftape::cpu {
namespace {

/// A strict order in which NaN is greater than every number.
template <class C>
bool less(C a, C b) {
  return a < b || (a == a && b != b);
}

template <class C>
void argsort_rows(int64_t* at, int64_t k, const Array& x, int64_t n, bool descending) {
  const auto item = static_cast<int64_t>(element_size(x.dtype()));
  const Load<C> read = loader<C>(x.dtype());
  parallel_ranges(x.numel() / n, std::max<int64_t>(1, 4096 / n), [&](int64_t begin, int64_t end) {
    struct Item {
      C key;
      int64_t place;
    };
    const Scratch<Item> scratch(n);
    Item* const items = scratch.data();
    const Scratch<C> keys(n + kLanes);
    for (int64_t r = begin; r < end; ++r) {
      read(static_cast<const char*>(x.raw()) + r * n * item, 1, n, keys.data());
      for (int64_t i = 0; i < n; ++i) items[i] = {keys.data()[i], i};
      // Equal keys in the order of their places: a total order, which needs no stable algorithm.
      auto before = [descending](const Item& a, const Item& b) {
        if (descending ? less(b.key, a.key) : less(a.key, b.key)) return true;
        if (descending ? less(a.key, b.key) : less(b.key, a.key)) return false;
        return a.place < b.place;
      };
      if (k < n) std::nth_element(items, items + k, items + n, before);
      std::sort(items, items + k, before);
      for (int64_t i = 0; i < k; ++i) at[r * k + i] = items[i].place;
    }
  });
}

}  // namespace

void CpuBackend::argsort(const Array& y, const Array& x, int dim, bool descending) {
  if (y.numel() == 0) return;
  const int last = x.dim() - 1;
  const int64_t n = x.dim() ? x.size(dim) : 1, k = x.dim() ? y.size(dim) : 1;
  const Array in = x.dim() ? x.transpose(dim, last).to_contiguous() : x.to_contiguous();
  const Array target = x.dim() ? y.transpose(dim, last) : y;
  const Array out = target.contiguous() ? target : empty_like(target);
  with_compute_type(x.dtype(), [&](auto t) {
    argsort_rows<typename decltype(t)::type>(out.data<int64_t>(), k, in, n, descending);
  });
  if (!target.contiguous()) copy(target, out);
}

}  // namespace halftape::cpu
