// Sliding windows as tensors, for convolution and pooling: windows() shows them, fold() adds them
// up where they overlap. Each is the other's derivative.
#pragma once
#include "halftape/autograd/ops/layout/dims.h"
#include "halftape/core/contract/windows.h"

namespace halftape {
namespace detail {

/// window_view() with history.
Tensor windows(const Tensor& x, const Windows& windows, const Shape& count);
/// (…, sizes…, count…) → (…, lengths…): for each element the sum of what lies on it, rounded once
/// to `dtype` (g's unless given).
Tensor fold(const Tensor& g, const Windows& windows, const Shape& lengths,
            std::optional<Dtype> dtype = {});

/// The options of windows over n dimensions: as many numbers, or one for all.
Windows windows_of(const char* op, int n, const Dims& kernel_size, const Dims& stride,
                   const Dims& padding, const Dims& dilation);
/// How many windows fit into padded lengths. `ceil`: a last one may reach beyond the end, unless it
/// begins there.
Shape window_count(const char* op, const Windows& windows, const Shape& lengths, bool ceil = false);
/// `given` for each of n dimensions: as many numbers, or one for all.
Dims each_dim(const char* op, const char* argument, const Dims& given, int n, int64_t least);
/// Throws if the bytes of such a tensor are more than 64 bits can count: before the work that an op
/// does for a part of its result.
void check_size(const Shape& shape, Dtype dtype);

}  // namespace detail
}  // namespace halftape
