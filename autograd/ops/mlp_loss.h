// What an MLP's outputs lose against a target, as one op: a training step of a small network is
// then one or two calls of the backend.
#pragma once
#include "halftape/autograd/ops/linear.h"

namespace halftape {

/// The mean loss of mlp(x, weights, biases, activation). target: int64 (…) are classes, each of
/// which counts, and the loss is cross_entropy; floating (…, out), it is mse_loss. x: (…, in) → ()
/// in float32 (float64 of a float64 x).
///
/// Networks of 16 bits, up to 128 wide and 8 layers deep, go through Backend::mlp_loss: forward
/// computes the loss alone, and backward everything once more together with the gradients, which
/// therefore carry the loss scale from the outputs on. Their weights and biases may also be
/// float32: they are rounded to x's dtype as they are read. Others are mlp() and the loss. Under
/// autocast: x in the lower dtype, weights and biases as they are.
Tensor mlp_loss(const Tensor& x, const Tensor& target, const TensorList& weights,
                const TensorList& biases = {}, Activation activation = Activation::Relu);

}  // namespace halftape
