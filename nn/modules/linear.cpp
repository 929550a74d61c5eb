#include "halftape/nn/modules/linear.h"

#include <cmath>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/ops/product/einsum.h"
#include "halftape/autograd/ops/product/linear.h"
#include "halftape/nn/init.h"

namespace halftape::nn {

void LinearImpl::reset() {
  detail::check_positive("Linear", "in_features", options.in_features(), "out_features",
                         options.out_features());
  weight = register_parameter("weight", empty({options.out_features(), options.in_features()}));
  bias = register_parameter("bias", options.bias() ? empty({options.out_features()}) : Tensor(),
                            options.bias());
  reset_parameters();
}

void LinearImpl::reset_parameters() {
  init::kaiming_uniform_(weight, std::sqrt(5.0));
  const double bound = 1 / std::sqrt(static_cast<double>(options.in_features()));
  if (bias.defined()) init::uniform_(bias, -bound, bound);
}

HALFTAPE_UNARY_FORWARD(Linear, linear(x, weight, bias), "in_features", options.in_features(),
                       "out_features", options.out_features(), "bias", options.bias())

void BilinearImpl::reset() {
  const int64_t in1 = options.in1_features(), in2 = options.in2_features(),
                out = options.out_features();
  detail::check_positive("Bilinear", "in1_features", in1, "in2_features", in2, "out_features", out);
  weight = register_parameter("weight", empty({out, in1, in2}));
  bias = register_parameter("bias", options.bias() ? empty({out}) : Tensor(), options.bias());
  reset_parameters();
}

void BilinearImpl::reset_parameters() {
  const double bound = 1 / std::sqrt(static_cast<double>(options.in1_features()));
  init::uniform_(weight, -bound, bound);
  if (bias.defined()) init::uniform_(bias, -bound, bound);
}

Tensor BilinearImpl::forward(const Tensor& a, const Tensor& b) const {
  const PlaceScope scope(*this);
  return scope.result(bilinear(a, b, weight, bias));
}

HALFTAPE_MODULE_TEXT(Bilinear, "in1_features", options.in1_features(), "in2_features",
                     options.in2_features(), "out_features", options.out_features(), "bias",
                     options.bias())

HALFTAPE_UNARY_FORWARD(Identity, x)
HALFTAPE_UNARY_FORWARD(Flatten, flatten(x, options.start_dim(), options.end_dim()), "start_dim",
                       options.start_dim(), "end_dim", options.end_dim())

Tensor UnflattenImpl::forward(const Tensor& x) const {
  const PlaceScope scope(*this);
  return scope.result(unflatten(x, options.dim(), Shape(std::span(options.sizes()))));
}
void UnflattenImpl::pretty_print(std::ostream& out) const {
  out << "halftape::nn::Unflatten(dim=" << options.dim() << ", unflattened_size={";
  const char* comma = "";
  for (const int64_t size : options.sizes()) {
    out << comma << size;
    comma = ", ";
  }
  out << "})";
}

}  // namespace halftape::nn
