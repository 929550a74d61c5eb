// Tensors whose elements say where they stand.
#pragma once
#include <halftape/halftape.h>

namespace halftape::testing {

/// 0, 1, 2, … in this shape.
inline Tensor counted(const Shape& shape, Dtype dtype = kFloat32) {
  return arange(numel(shape)).reshape(shape).to(dtype);
}

/// 1, 2, 3, … in y's shape and dtype.
inline Tensor counting(const Tensor& y) {
  return arange(1, y.numel() + 1, y.options()).reshape(y.sizes());
}

}  // namespace halftape::testing
