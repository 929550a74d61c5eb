// Parts of shapes, and what ops put together of them.
#pragma once
#include "halftape/autograd/ops/layout/view.h"

namespace halftape::detail {

/// The last n sizes, and those before them.
inline Shape last_dims(const Shape& shape, int n) { return shape.slice(shape.size() - n, n); }
inline Shape leading_dims(const Shape& shape, int n) { return shape.slice(0, shape.size() - n); }
inline Shape joined(Shape a, const Shape& b) {
  for (int64_t v : b) a.push_back(v);
  return a;
}
/// Ones, but for `size` in dimension d: the shape of a list that lies along d of `rank` dimensions.
inline Shape along(int rank, int d, int64_t size) {
  Shape shape = Dims::filled(rank, 1);
  shape[d] = size;
  return shape;
}
/// reshape(), but x itself where it has that shape: a node less, where nobody sees which it is.
inline Tensor reshaped(const Tensor& x, const Shape& shape) {
  return shape == x.sizes() ? x : reshape(x, shape);
}
/// A list as dimension d of `rank` dimensions.
inline Tensor along(const Tensor& list, int rank, int d) {
  return reshaped(list, along(rank, d, list.numel()));
}

}  // namespace halftape::detail
