// Parameters as one vector and back, under LibTorch's names.
#pragma once
#include <vector>

#include "halftape/autograd/tensor.h"

namespace halftape::nn::utils {

/// All elements one after another, (total), with history. Throws for parameters of several devices,
/// and for none.
Tensor parameters_to_vector(const std::vector<Tensor>& parameters);
/// Fills the parameters with the elements of a vector (total), converted to their dtypes, without
/// history. Values are copied into the tensors that optimizers and captured graphs know, where
/// LibTorch makes the parameters views of the vector. Throws, changing nothing, when its size is
/// not that of all parameters.
void vector_to_parameters(const Tensor& vector, const std::vector<Tensor>& parameters);

}  // namespace halftape::nn::utils
