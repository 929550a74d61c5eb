// The gradient with which backward() begins when it is given none.
#pragma once
#include "halftape/autograd/tensor.h"

namespace halftape::autograd {

/// () 1.
Tensor implicit_one(Device device, Dtype dtype);
/// True if g is that one. A rule need not multiply by it.
bool is_implicit_one(const Tensor& g);

}  // namespace halftape::autograd
