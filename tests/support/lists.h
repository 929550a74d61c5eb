// Lists of numbers as tensors of one dimension, and back.
#pragma once
#include <halftape/halftape.h>

#include <vector>

namespace halftape::testing {

inline Tensor list(const std::vector<double>& v, Dtype dtype = kFloat64) {
  return tensor(v, dtype);
}
inline Tensor ints(const std::vector<int64_t>& v, Dtype dtype = kInt64) { return tensor(v, dtype); }
/// With a gradient.
inline Tensor leaf(const std::vector<double>& v) { return list(v).requires_grad_(); }
/// Between 0 and 1.
inline Tensor points() { return list({0.1, 0.35, 0.62, 0.9}); }

inline std::vector<double> values(const Tensor& t) { return t.to_vector(); }
inline std::vector<int64_t> ints_of(const Tensor& t) { return t.to_vector<int64_t>(); }

}  // namespace halftape::testing
