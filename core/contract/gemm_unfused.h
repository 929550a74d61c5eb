// The epilogue of a product by other calls of the contract, for backends that cannot join it.
#pragma once
#include "halftape/core/contract/backend.h"

namespace halftape {

/// In place on a contiguous d: relu, which writes the mask; or its gradient, 0 where the mask has
/// no bit.
using MaskedRelu = void (*)(const Array& d, const Array& mask, bool gradient);

/// Calls on.gemm() with a part of g, and does the rest of g's epilogue and bias_grad by other
/// calls.
void gemm_unfused(Backend& on, const Gemm& g, MaskedRelu masked_relu);

}  // namespace halftape
