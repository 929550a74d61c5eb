// Products of tensors along named or numbered dimensions, by way of batched matrix products.
#pragma once
#include <string_view>

#include "halftape/autograd/tensor.h"

namespace halftape {

/// Einstein's summation: "bij,bjk->bik" names the dimensions of each input and of the result; names
/// that the result lacks are summed over. A name twice in one input takes its diagonal; "..."
/// stands for leading dimensions that broadcast; without "->" the result has the names that occur
/// once, in alphabetical order. Inputs are contracted from left to right. At most 10 dimensions
/// meet in one step. Under autocast: the lower dtype.
Tensor einsum(std::string_view equation, const TensorList& tensors);
/// Sums over dims_a[i] of a and dims_b[i] of b: the dimensions left of a, then those of b. Under
/// autocast, as the next one: the widest dtype given.
Tensor tensordot(const Tensor& a, const Tensor& b, const Dims& dims_a, const Dims& dims_b);
/// y[…, o] = Σ a[…, i]·weight[o, i, j]·b[…, j] + bias[o].
Tensor bilinear(const Tensor& a, const Tensor& b, const Tensor& weight, const Tensor& bias = {});
/// The Kronecker product: each element of a times all of b. Under autocast: the dtypes given.
Tensor kron(const Tensor& a, const Tensor& b);

namespace detail {
/// Elements whose indices in two dimensions of equal size agree; the first of the two stays.
Tensor diagonal(const Tensor& x, int keep, int drop);
}  // namespace detail

}  // namespace halftape
