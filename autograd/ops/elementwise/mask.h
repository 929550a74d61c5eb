// Picking and placing elements by condition. Masks are bool and broadcast with the tensor.
#pragma once
#include "halftape/autograd/tensor.h"

namespace halftape {

/// x, with `value` (a number or a 0-dim tensor) where the mask is true. Dtype of x.
Tensor masked_fill(const Tensor& x, const Tensor& mask, Scalar value);
Tensor masked_fill(const Tensor& x, const Tensor& mask, const Tensor& value);
/// The elements where the mask is true, one after the other. Waits for the device.
Tensor masked_select(const Tensor& x, const Tensor& mask);
/// x, with the elements of `source`, one after the other, where the mask is true. Waits.
Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source);

/// int64 (n, x.dim()): the positions of the n elements that are not zero, row-major. Waits.
Tensor nonzero(const Tensor& x);
Tensor argwhere(const Tensor& x);
/// The columns of nonzero(): one index for each dimension, as Tensor::index takes them.
TensorList nonzero_numpy(const Tensor& x);
TensorList where(const Tensor& condition);

/// The lower triangle of the last two dimensions: 0 above the diagonal that lies `diagonal` above
/// the main one.
Tensor tril(const Tensor& x, int64_t diagonal = 0);
/// The upper triangle: 0 below that diagonal.
Tensor triu(const Tensor& x, int64_t diagonal = 0);
/// int64 (2, n): rows and columns of the triangles of a (rows, columns) matrix, row-major.
Tensor tril_indices(int64_t rows, int64_t columns, int64_t offset = 0,
                    const TensorOptions& options = kInt64);
Tensor triu_indices(int64_t rows, int64_t columns, int64_t offset = 0,
                    const TensorOptions& options = kInt64);

}  // namespace halftape
