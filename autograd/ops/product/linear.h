// Linear layers with an activation, and chains of them. Under autocast: the lower dtype. A weight
// or bias that was cast to 16 bits from float32 gets its gradient in float32: nothing is rounded or
// overflows between the product's sum and the leaf.
#pragma once
#include "halftape/autograd/tensor.h"

namespace halftape {

enum class Activation : uint8_t {
  None,
  Relu,
  Gelu,  // the tanh form
  Silu,
  Tanh,
  Sigmoid,
};

/// x·wᵀ + bias. x: (…, in), weight: (out, in), bias: (out) or undefined → (…, out).
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
/// activation(x·wᵀ + bias), ReLU and GELU in one product: the activation sees the sum in float,
/// before it is rounded.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, Activation activation);

/// Linear layers one after the other, with the activation between them: one product for each layer
/// forward and two backward, which compute the gradients of ReLU, GELU and biases, too.
/// weights: (hidden, in), …, (out, hidden); biases: as many, some may be undefined, or
/// none. x: (…, in) → (…, out).
Tensor mlp(const Tensor& x, const TensorList& weights, const TensorList& biases = {},
           Activation activation = Activation::Relu);

}  // namespace halftape
