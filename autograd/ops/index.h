// Picking elements by number.
#pragma once
#include "halftape/autograd/tensor.h"

namespace halftape {

/// y[i…] = x[… index[i…] …]: along `dim` the position comes from `index` (int64), whose other sizes
/// do not exceed x's.
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index);
/// Whole slices of a dimension, in the order of the one-dimensional `index` (int64).
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index);
/// x, with g added at index along dim: the derivative of gather. Repeated positions add up in a
/// fixed order.
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& g);

}  // namespace halftape
