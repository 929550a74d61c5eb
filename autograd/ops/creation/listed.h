// Lists of numbers that the host computes one by one.
#pragma once
#include <algorithm>

#include "halftape/core/contract/backend.h"

namespace halftape::detail {

/// (n) on the CPU: f(0), f(1), …, numbers of type T, each converted to `dtype` once. Computed in
/// blocks, so that no more memory is needed than for the result.
template <class T, class F>
Array listed(int64_t n, Dtype dtype, const F& f) {
  Array y(n, dtype, Device(kCPU));
  const Array block(std::min<int64_t>(n, 4096), dtype_of<T>, kCPU);
  T* const out = block.data<T>();
  for (int64_t begin = 0, count = 0; begin < n; begin += count) {
    count = std::min(n - begin, block.numel());
    for (int64_t i = 0; i < count; ++i) out[i] = f(begin + i);
    backend(kCPU).copy(y.slice(0, begin, begin + count), block.slice(0, 0, count));
  }
  return y;
}

}  // namespace halftape::detail
