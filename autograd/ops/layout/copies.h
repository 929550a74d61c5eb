// Copies of a tensor: in another dtype, contiguous, or summed to a smaller shape.
#pragma once
#include "halftape/autograd/tensor.h"

namespace halftape {

/// Summed to a shape that broadcasts to x's: the derivative of broadcasting.
Tensor sum_to(const Tensor& x, const Shape& shape);
/// x converted to a dtype, rounded once; the gradient is converted back. x itself when it has the
/// dtype. A float32 gradient of a tensor that was cast to 16 bits from a wider dtype is not rounded
/// to 16 bits on its way.
Tensor cast(const Tensor& x, Dtype dtype);
/// x in its compute_dtype(), for ops of several steps that round to x's dtype at the end.
Tensor widened(const Tensor& x);
/// A copy with its own bytes; recorded.
Tensor clone(const Tensor& x);
/// x itself if its elements are in this order in memory, else a copy in that order: row-major, or
/// ChannelsLast of (N, C, H, W) and ChannelsLast3d of (N, C, D, H, W), where the channels of a
/// pixel are neighbours.
Tensor contiguous(const Tensor& x, MemoryFormat format = MemoryFormat::Contiguous);

namespace detail {
/// cast() for a value that is converted already.
Tensor recorded_cast(const Tensor& x, Array value);
}  // namespace detail

}  // namespace halftape
