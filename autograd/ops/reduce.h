// Reductions. `dims` empty: all dimensions. Accumulated in float32 (float64, int64) and rounded
// once.
#pragma once
#include "halftape/autograd/tensor.h"

namespace halftape {

/// The sum over `dims`; integers give int64. `dtype`: of the result. Under autocast: float32.
Tensor sum(const Tensor& x, const Dims& dims = {}, bool keepdim = false,
           std::optional<Dtype> dtype = {});
/// The mean over `dims`; floating-point tensors only.
Tensor mean(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
/// The largest value; NaN wins. Equal largest values share the gradient. Throws on an empty extent.
Tensor amax(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor amin(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
/// Index (int64) of the first largest value along a dimension, or in the flattened tensor.
Tensor argmax(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false);

}  // namespace halftape
