// Memory for time: what a part of the network saves is computed again when backward needs it.
#pragma once
#include <functional>

#include "halftape/autograd/tensor.h"

namespace halftape::autograd {

/// f(inputs), without keeping what its ops save: the first rule that asks makes f run once more, on
/// the same inputs, with the same random numbers and the same autocast state (Chen et al. 2016,
/// arXiv:1604.06174). Gradients of any order, grad() and nesting work as without it. f must compute
/// the same again; inputs changed in place meanwhile are noticed.
TensorList checkpoint(const std::function<TensorList(const TensorList&)>& f,
                      const TensorList& inputs);
Tensor checkpoint(const std::function<Tensor(const TensorList&)>& f, const TensorList& inputs);

}  // namespace halftape::autograd
