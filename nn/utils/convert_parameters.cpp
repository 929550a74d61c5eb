#include "halftape/nn/utils/convert_parameters.h"

#include "halftape/autograd/ops/layout/shape.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/tape/grad_mode.h"

namespace halftape::nn::utils {

Tensor parameters_to_vector(const std::vector<Tensor>& parameters) {
  HALFTAPE_CHECK(!parameters.empty(), "parameters_to_vector: there are no parameters");
  TensorList flat;
  for (const Tensor& p : parameters) {
    HALFTAPE_CHECK(p.device() == parameters[0].device(), "parameters_to_vector: parameters are on ",
                   parameters[0].device(), " and on ", p.device(), "; move them to one device");
    flat.push_back(p.reshape({-1}));
  }
  return cat(flat);
}

void vector_to_parameters(const Tensor& vector, const std::vector<Tensor>& parameters) {
  int64_t total = 0;
  for (const Tensor& p : parameters) total += p.numel();
  HALFTAPE_CHECK(vector.dim() == 1 && vector.numel() == total,
                 "vector_to_parameters: the vector is ", vector.sizes(),
                 ", and the parameters have ", total, " elements");
  const NoGradGuard no_grad;
  int64_t at = 0;
  for (const Tensor& p : parameters) {
    p.copy_(vector.narrow(0, at, p.numel()).reshape(p.sizes()));
    at += p.numel();
  }
}

}  // namespace halftape::nn::utils
