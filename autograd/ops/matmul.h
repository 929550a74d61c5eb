// Matrix products. Accumulated in float32 (float64) and rounded once. Under autocast: the lower
// dtype.
#pragma once
#include "halftape/autograd/tensor.h"

namespace halftape {

/// PyTorch's matmul: vectors, matrices (…, m, k)·(…, k, n) → (…, m, n) with broadcast leading
/// dimensions. Both inputs need one floating dtype.
Tensor matmul(const Tensor& a, const Tensor& b);
inline Tensor mm(const Tensor& a, const Tensor& b) { return matmul(a, b); }

/// x·wᵀ + bias. x: (…, in), weight: (out, in), bias: (out) or undefined → (…, out).
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

}  // namespace halftape
