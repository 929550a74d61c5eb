// Gradients that kernels change in place.
#pragma once
#include <span>

#include "halftape/autograd/tensor.h"

namespace halftape {

/// Gives a gradient bytes of its own where it overlaps itself, an earlier gradient of the list or
/// `other`: a kernel that changes all gradients in place would change such bytes more than once.
/// What autograd::grad() returned may be so, and a user may assign it. Marks stay.
void separate_gradients(std::span<const Tensor> parameters, const Array& other = {});

/// Makes a parameter's gradient zero and whole: in its bytes, unless a graph may need them or the
/// gradient overlaps itself.
void zero_gradient(const Tensor& parameter);

}  // namespace halftape
