// Layers of products: what a linear layer computes. Under autocast: the lower dtype.
#pragma once
#include "halftape/autograd/tensor.h"

namespace halftape {

/// x·wᵀ + bias. x: (…, in), weight: (out, in), bias: (out) or undefined → (…, out).
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

}  // namespace halftape
