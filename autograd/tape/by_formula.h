// The derivative of an op that one call of the backend computes, where it is to be differentiated
// again.
#pragma once
#include <functional>
#include <span>

#include "halftape/autograd/tape/node.h"

namespace halftape {

/// The vector-Jacobian product of `formula`, recorded, for the gradient g of its result: one
/// gradient for each of the inputs that the op saved, undefined where none is wanted. The formula
/// gets the inputs, undefined where nothing was saved; each is seen through a node of its own,
/// because one tensor may be several of them.
Grads vjp_by_formula(Node& self, std::span<const Saved> inputs, const Tensor& g,
                     const std::function<Tensor(const TensorList& inputs)>& formula);

}  // namespace halftape
