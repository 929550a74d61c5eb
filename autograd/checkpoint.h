// Less memory for more time: tensors saved by a part of a network are computed again in backward.
#pragma once
#include <functional>

#include "halftape/autograd/tensor.h"

namespace halftape::autograd {

/// f(inputs), without keeping the tensors that its ops save. When backward first needs one, f runs
/// once more, with the same inputs, random numbers and autocast state (Chen et al. 2016,
/// arXiv:1604.06174). Gradients of any order, grad() and nesting work as without it. f must compute
/// the same again. Throws in backward if an input was changed in place meanwhile.
TensorList checkpoint(const std::function<TensorList(const TensorList&)>& f,
                      const TensorList& inputs);
Tensor checkpoint(const std::function<Tensor(const TensorList&)>& f, const TensorList& inputs);

}  // namespace halftape::autograd
