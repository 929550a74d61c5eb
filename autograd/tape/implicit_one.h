// The gradient with which backward() begins when it is given none.
#pragma once
#include "halftape/autograd/tensor.h"

namespace halftape::autograd {

/// () 1.
Tensor implicit_one(Device device, Dtype dtype);
/// True if g is that one. A rule need not multiply by it.
bool is_implicit_one(const Tensor& g);
/// g, or a copy of it if it is that one, for those who may write to it.
Tensor writable(const Tensor& g);

}  // namespace halftape::autograd
