// Copies of a tensor: in another dtype, contiguous, or summed to a smaller shape.
#pragma once
#include "halftape/autograd/tensor.h"

namespace halftape {

/// Summed to a shape that broadcasts to x's: the derivative of broadcasting.
Tensor sum_to(const Tensor& x, const Shape& shape);
/// x converted to a dtype, rounded once; the gradient is converted back. x itself when it has the
/// dtype. Gradients that come in float32 stay so on their way to what was cast to 16 bits.
Tensor cast(const Tensor& x, Dtype dtype);
/// x in its compute_dtype(), for operations of several steps, which round to x's dtype at the end.
Tensor widened(const Tensor& x);
Tensor clone(const Tensor& x);
Tensor contiguous(const Tensor& x);

namespace detail {
/// cast() where the value is there already.
Tensor recorded_cast(const Tensor& x, Array value);
}  // namespace detail

}  // namespace halftape
