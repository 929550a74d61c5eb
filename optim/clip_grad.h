// Gradient clipping, under LibTorch's names. With a GradScaler, call scaler.unscale_(optimizer)
// first.
#pragma once
#include <vector>

#include "halftape/autograd/tensor.h"

namespace halftape::nn::utils {

/// Scales all gradients so that their joint norm is at most max_norm; gives the norm before, as a
/// one-element float32 (float64) tensor. norm_type: 2, 1 or infinity, or any positive number.
/// Nothing is read back. A norm that is not finite leaves the gradients as they are (torch would
/// turn all of them into 0 or NaN), or throws with error_if_nonfinite (which waits for the device).
/// Throws unless max_norm > 0.
Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type = 2,
                       bool error_if_nonfinite = false);
/// Clamps every gradient element to [−clip_value, clip_value].
void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value);

}  // namespace halftape::nn::utils
