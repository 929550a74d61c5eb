// An MLP and its loss as one op: a training step of a small network is then one or two calls of the
// backend.
#pragma once
#include "halftape/autograd/ops/product/linear.h"

namespace halftape {

/// The mean loss of mlp(x, weights, biases, activation). target: int64 (…) are classes, each of
/// which counts, and the loss is cross_entropy; floating (…, out), it is mse_loss. x: (…, in) → ()
/// in float32 (float64 of a float64 x).
///
/// Networks of 16 bits, up to 128 wide and 8 layers deep, are one call of the backend. Their
/// weights and biases may also be float32: they are rounded to x's dtype as they are read. Others
/// are mlp() and the loss. Under autocast: in the lower dtype, x too being rounded as it is read.
///
/// Gradients at the outputs are multiplied by the loss scale before they are rounded to float16. It
/// is `scale`, () in float32, if the caller knows what backward's gradient will be, as a GradScaler
/// does (GradScaler::factor()): then forward computes the gradients of float32 parameters as well,
/// in the same pass, and backward multiplies them by what its gradient is of the scale. bfloat16,
/// which has float32's range, needs no scale for that. Without one, forward computes the loss
/// alone, and backward everything once more, with the gradient that it is given.
Tensor mlp_loss(const Tensor& x, const Tensor& target, const TensorList& weights,
                const TensorList& biases = {}, Activation activation = Activation::Relu,
                const Tensor& scale = {});

}  // namespace halftape
