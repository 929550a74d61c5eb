// Tensors of every dtype and odd shapes, to save and load.
#pragma once
#include <cstring>
#include <string>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/tensor.h"
#include "halftape/tests/support/dtypes.h"

namespace halftape::testing {

inline const Shape kOddShapes[] = {
    {},     {0},    {1},       {7},          {2, 3},
    {3, 0}, {0, 5}, {1, 1, 1}, {2, 3, 1, 5}, {1, 2, 1, 1, 2, 1, 1, 3, 1, 1}};

/// The bytes vary, so that NaN payloads, infinities and subnormals are among the floats; bools are
/// 0 and 1.
inline Tensor bytes_of_all_kinds(Dtype dtype, const Shape& shape) {
  const Tensor t = empty(shape, TensorOptions(dtype).device(kCPU));
  auto* bytes = static_cast<uint8_t*>(t.data_ptr());
  for (size_t i = 0; i < t.nbytes(); ++i) {
    const size_t value = i * 89 + 0x7c;
    bytes[i] = static_cast<uint8_t>(dtype == kBool ? value % 3 % 2 : value);
  }
  return t.to(get_default_device());
}

}  // namespace halftape::testing
