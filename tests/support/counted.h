// Tensors whose elements say where they stand, and the dtypes to try them in.
#pragma once
#include <vector>

#include <halftape/halftape.h>

namespace halftape::testing {

inline const std::vector<Dtype> kAll = {kBool,  kUInt8,   kInt8,     kInt16,   kInt32,
                                        kInt64, kFloat16, kBFloat16, kFloat32, kFloat64};

/// 0, 1, 2, … in this shape.
inline Tensor counted(const Shape& shape, Dtype dtype = kFloat32) {
  return arange(numel(shape)).reshape(shape).to(dtype);
}

}  // namespace halftape::testing
