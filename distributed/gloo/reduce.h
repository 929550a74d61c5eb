// The arithmetic of the ring. Gloo has its own, but Debian's drops some sums of float16 (its
// float16::operator= skips an assignment for which an operator!= compares bits with a number), and
// has no bfloat16.
#pragma once
#include <cstddef>

#include "halftape/core/dtype.h"
#include "halftape/distributed/engine/engine.h"

namespace halftape::distributed {

/// Replaces n elements each by what op makes of them and of those of `other`, which lie apart.
using Reduction = void(void* elements, const void* other, size_t n);

/// 16-bit elements are loaded to float and rounded once. Integers wrap around. Min and max of a NaN
/// are NaN. Null for averages, and for dtypes other than int32, int64 and those of real numbers.
Reduction* reduction(Dtype dtype, ReduceOp op);

}  // namespace halftape::distributed
