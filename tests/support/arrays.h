// Arrays of lists of numbers, and back; random ones, and ones that lie in other ways.
#pragma once
#include <algorithm>
#include <vector>

#include "halftape/core/contract/backend.h"

namespace halftape::testing {

/// Of one dimension, on the CPU.
template <class T>
Array array_of(const std::vector<T>& v) {
  const Array a({static_cast<int64_t>(v.size())}, dtype_of<T>, kCPU);
  std::copy(v.begin(), v.end(), a.data<T>());
  return a;
}
/// All elements, in row-major order.
inline std::vector<double> values(const Array& a) {
  const Array wide = a.to_contiguous().to(kCPU).to(kFloat64);
  return {wide.data<double>(), wide.data<double>() + wide.numel()};
}
/// Element i, in row-major order, of a contiguous array on the CPU becomes `value`.
inline void set(const Array& a, int64_t i, double value) {
  cpu_backend().fill(a.reshape({a.numel()}).slice(0, i, i + 1), value);
}

/// Normal numbers on the CPU, the same for the same seed.
inline Array normal(const Shape& shape, Dtype dtype, uint64_t seed = 1, double spread = 1,
                    double mean = 0) {
  const Array a(shape, dtype, kCPU);
  cpu_backend().random(a, Distribution::Normal, mean, spread, {.seed = seed, .offset = 0});
  return a;
}

/// The same elements with other strides: 0 as they are, 1 transposed, 2 every second row and every
/// third column of a larger block, from its second element on.
inline Array laid_out(const Array& x, int how) {
  const int last = x.dim() - 1;
  if (how == 0) return x;
  if (how == 1) return x.transpose(last - 1, last).clone().transpose(last - 1, last);
  Shape wide = x.shape();
  wide[last - 1] = 2 * wide[last - 1] + 1, wide[last] = 3 * wide[last] + 1;
  const Array y = Array(wide, x.dtype(), kCPU)
                      .slice(last - 1, 1, wide[last - 1], 2)
                      .slice(last, 1, wide[last], 3);
  backend(kCPU).copy(y, x);
  return y;
}

}  // namespace halftape::testing
