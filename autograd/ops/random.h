// Random functions of tensors. Bits come from Philox, so the same seed gives the same numbers on
// every device.
#pragma once
#include "halftape/autograd/tensor.h"

namespace halftape {

/// Each element is 0 with probability p and x/(1 − p) otherwise; x itself when not training.
/// Srivastava et al. 2014. Throws unless 0 ≤ p ≤ 1.
Tensor dropout(const Tensor& x, double p = 0.5, bool training = true);

}  // namespace halftape
