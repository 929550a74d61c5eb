// A product's epilogue in calls of its own, for backends: what they cannot do at once, they do so.
#pragma once
#include "halftape/core/contract/backend.h"

namespace halftape {

/// In place on a contiguous d: relu and its mask, or, as its gradient, 0 where the mask has no bit.
using MaskedRelu = void (*)(const Array& d, const Array& mask, bool gradient);

/// One product by `on` with less to do in it, and what is then left of g's epilogue and bias_grad.
void gemm_unfused(Backend& on, const Gemm& g, MaskedRelu masked_relu);

}  // namespace halftape
