#include "halftape/nn/modules/linear.h"

#include <cmath>

#include "halftape/autograd/ops/create.h"
#include "halftape/autograd/ops/linear.h"
#include "halftape/nn/init.h"

namespace halftape::nn {

LinearImpl::LinearImpl(const LinearOptions& o) : options(o) {
  HALFTAPE_CHECK(o.in_features() > 0 && o.out_features() > 0, "Linear: in_features ",
                 o.in_features(), " and out_features ", o.out_features(), " must be positive");
  weight = register_parameter("weight", empty({o.out_features(), o.in_features()}));
  if (o.bias()) bias = register_parameter("bias", empty({o.out_features()}));
  reset_parameters();
}

void LinearImpl::reset_parameters() {
  init::kaiming_uniform_(weight, std::sqrt(5.0));
  const double bound = 1 / std::sqrt(static_cast<double>(options.in_features()));
  if (bias.defined()) init::uniform_(bias, -bound, bound);
}

Tensor LinearImpl::forward(const Tensor& x) const { return linear(x, weight, bias); }

void LinearImpl::pretty_print(std::ostream& out) const {
  out << "halftape::nn::Linear(in_features=" << options.in_features()
      << ", out_features=" << options.out_features()
      << ", bias=" << (options.bias() ? "true" : "false") << ')';
}

void IdentityImpl::pretty_print(std::ostream& out) const { out << "halftape::nn::Identity()"; }

}  // namespace halftape::nn
