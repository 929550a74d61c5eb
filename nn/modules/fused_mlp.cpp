#include "halftape/nn/modules/fused_mlp.h"

#include <string>

#include "halftape/autograd/ops/loss/mlp_loss.h"

namespace halftape::nn {
namespace {

const char* name_of(Activation a) {
  constexpr const char* names[] = {"none", "relu", "gelu", "silu", "tanh", "sigmoid"};
  return names[static_cast<size_t>(a)];
}

}  // namespace

void FusedMLPImpl::reset() {
  HALFTAPE_CHECK(options.layers() >= 0, "FusedMLP: layers ", options.layers(), " is negative");
  HALFTAPE_CHECK(options.layers() < detail::kMostLayers, "FusedMLP: layers ", options.layers(),
                 " is more than ", detail::kMostLayers - 1);
  linears.clear();
  int64_t width = options.in_features();
  for (int64_t l = 0; l <= options.layers(); ++l) {
    const int64_t next = l < options.layers() ? options.hidden_features() : options.out_features();
    // Between two of them a Sequential has the activation.
    linears.push_back(register_module(std::to_string(2 * l),
                                      Linear(LinearOptions(width, next).bias(options.bias()))));
    width = next;
  }
}

void FusedMLPImpl::reset_parameters() {
  for (const Linear& l : linears) l->reset_parameters();
}

TensorList FusedMLPImpl::each(Tensor LinearImpl::*parameter) const {
  TensorList all;
  for (const Linear& l : linears) all.push_back((*l).*parameter);
  return all;
}

Tensor FusedMLPImpl::loss(const Tensor& x, const Tensor& target, const Tensor& scale) const {
  const PlaceScope scope(*this);
  return mlp_loss(x, target, each(&LinearImpl::weight), each(&LinearImpl::bias),
                  options.activation(), scale);
}

HALFTAPE_UNARY_FORWARD(
    FusedMLP, mlp(x, each(&LinearImpl::weight), each(&LinearImpl::bias), options.activation()),
    "in_features", options.in_features(), "hidden_features", options.hidden_features(), "layers",
    options.layers(), "out_features", options.out_features(), "activation",
    name_of(options.activation()), "bias", options.bias())

}  // namespace halftape::nn
