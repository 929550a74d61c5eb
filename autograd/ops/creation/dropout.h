// Dropout: zeros at random while training. Under autocast: the dtype that comes in.
#pragma once
#include "halftape/autograd/tensor.h"

namespace halftape {

// All draw anew at each call from the device's default generator, give x itself when not training
// or when p is 0, and throw unless 0 ≤ p ≤ 1. A feature is all of x that has the same first two
// indices, a channel of one image, say; x then needs two dimensions.

/// Each element is 0 with probability p and x/(1 − p) otherwise. Srivastava et al. 2014.
Tensor dropout(const Tensor& x, double p = 0.5, bool training = true);
/// The same for whole features. Tompson et al. 2014, arXiv:1411.4280.
Tensor feature_dropout(const Tensor& x, double p = 0.5, bool training = true);
/// Each element is what SELU tends to, −1.758, with probability p; then all are scaled and shifted
/// so that mean 0 and variance 1 stay. Halves are computed in float32 and rounded once.
/// Klambauer et al. 2017, arXiv:1706.02515.
Tensor alpha_dropout(const Tensor& x, double p = 0.5, bool training = true);
/// The same for whole features.
Tensor feature_alpha_dropout(const Tensor& x, double p = 0.5, bool training = true);

}  // namespace halftape
