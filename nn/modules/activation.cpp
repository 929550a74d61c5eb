#include "halftape/nn/modules/activation.h"

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/nn/functional/activation.h"

namespace halftape::nn {

using detail::unless;

Tensor TanhImpl::forward(const Tensor& x) const { return tanh(x); }
Tensor SigmoidImpl::forward(const Tensor& x) const { return sigmoid(x); }
Tensor SiLUImpl::forward(const Tensor& x) const { return silu(x); }
Tensor MishImpl::forward(const Tensor& x) const { return mish(x); }
Tensor SoftsignImpl::forward(const Tensor& x) const { return softsign(x); }
Tensor TanhshrinkImpl::forward(const Tensor& x) const { return tanhshrink(x); }
Tensor LogSigmoidImpl::forward(const Tensor& x) const { return log_sigmoid(x); }
Tensor HardsigmoidImpl::forward(const Tensor& x) const { return hardsigmoid(x); }
Tensor HardswishImpl::forward(const Tensor& x) const { return hardswish(x); }
Tensor ReLUImpl::forward(const Tensor& x) const { return functional::relu(x, options); }
Tensor ReLU6Impl::forward(const Tensor& x) const { return functional::relu6(x, options); }
Tensor ELUImpl::forward(const Tensor& x) const { return functional::elu(x, options); }
Tensor SELUImpl::forward(const Tensor& x) const { return functional::selu(x, options); }
Tensor CELUImpl::forward(const Tensor& x) const { return functional::celu(x, options); }
Tensor LeakyReLUImpl::forward(const Tensor& x) const { return functional::leaky_relu(x, options); }
Tensor HardtanhImpl::forward(const Tensor& x) const { return functional::hardtanh(x, options); }
Tensor ThresholdImpl::forward(const Tensor& x) const { return functional::threshold(x, options); }
Tensor HardshrinkImpl::forward(const Tensor& x) const { return functional::hardshrink(x, options); }
Tensor SoftshrinkImpl::forward(const Tensor& x) const { return functional::softshrink(x, options); }
Tensor SoftplusImpl::forward(const Tensor& x) const { return functional::softplus(x, options); }
Tensor GELUImpl::forward(const Tensor& x) const { return functional::gelu(x, options); }
Tensor GLUImpl::forward(const Tensor& x) const { return functional::glu(x, options); }
Tensor SoftmaxImpl::forward(const Tensor& x) const { return functional::softmax(x, options.dim()); }
Tensor LogSoftmaxImpl::forward(const Tensor& x) const {
  return functional::log_softmax(x, options.dim());
}
Tensor SoftminImpl::forward(const Tensor& x) const { return functional::softmin(x, options.dim()); }

Tensor RReLUImpl::forward(const Tensor& x) const {
  functional::RReLUFuncOptions o;
  o.lower(options.lower()).upper(options.upper()).inplace(options.inplace());
  return functional::rrelu(x, o.training(is_training()));
}
Tensor Softmax2dImpl::forward(const Tensor& x) const {
  HALFTAPE_CHECK(x.dim() == 3 || x.dim() == 4,
                 "Softmax2d: the input has to be (N, C, H, W) or (C, H, W), and is ", x.sizes());
  return functional::softmax(x, -3);
}

HardtanhImpl::HardtanhImpl(const HardtanhOptions& o) : options(o) { HardtanhImpl::reset(); }
void HardtanhImpl::reset() {
  HALFTAPE_CHECK(options.min_val() < options.max_val(),
                 "Hardtanh: max_val must be greater than min_val, and they are ", options.max_val(),
                 " and ", options.min_val());
}

PReLUImpl::PReLUImpl(const PReLUOptions& o) : options(o) { PReLUImpl::reset(); }
void PReLUImpl::reset() {
  HALFTAPE_CHECK(options.num_parameters() > 0, "PReLU: num_parameters ", options.num_parameters(),
                 " must be positive");
  weight = register_parameter("weight", full({options.num_parameters()}, options.init()));
}
Tensor PReLUImpl::forward(const Tensor& x) const { return prelu(x, weight); }

HALFTAPE_MODULE_TEXT(Tanh)
HALFTAPE_MODULE_TEXT(Sigmoid)
HALFTAPE_MODULE_TEXT(SiLU)
HALFTAPE_MODULE_TEXT(Mish)
HALFTAPE_MODULE_TEXT(Softsign)
HALFTAPE_MODULE_TEXT(Tanhshrink)
HALFTAPE_MODULE_TEXT(LogSigmoid)
HALFTAPE_MODULE_TEXT(Hardsigmoid)
HALFTAPE_MODULE_TEXT(Hardswish)
HALFTAPE_MODULE_TEXT(GELU)
HALFTAPE_MODULE_TEXT(Softmax2d)
HALFTAPE_MODULE_TEXT(PReLU, "num_parameters", options.num_parameters())
HALFTAPE_MODULE_TEXT(Hardshrink, "", options.lambda())
HALFTAPE_MODULE_TEXT(Softshrink, "", options.lambda())
HALFTAPE_MODULE_TEXT(Softplus, "beta", options.beta(), "threshold", options.threshold())
HALFTAPE_MODULE_TEXT(GLU, "dim", options.dim())
HALFTAPE_MODULE_TEXT(Softmax, "dim", options.dim())
HALFTAPE_MODULE_TEXT(LogSoftmax, "dim", options.dim())
HALFTAPE_MODULE_TEXT(Softmin, "dim", options.dim())
// As in LibTorch, `inplace` is printed only when it is true.
HALFTAPE_MODULE_TEXT(ReLU, "inplace", unless(false, options.inplace()))
HALFTAPE_MODULE_TEXT(ReLU6, "inplace", unless(false, options.inplace()))
HALFTAPE_MODULE_TEXT(SELU, "inplace", unless(false, options.inplace()))
HALFTAPE_MODULE_TEXT(ELU, "alpha", options.alpha(), "inplace", unless(false, options.inplace()))
HALFTAPE_MODULE_TEXT(CELU, "alpha", options.alpha(), "inplace", unless(false, options.inplace()))
HALFTAPE_MODULE_TEXT(LeakyReLU, "negative_slope", options.negative_slope(), "inplace",
                     unless(false, options.inplace()))
HALFTAPE_MODULE_TEXT(Hardtanh, "min_val", options.min_val(), "max_val", options.max_val(),
                     "inplace", unless(false, options.inplace()))
HALFTAPE_MODULE_TEXT(RReLU, "lower", options.lower(), "upper", options.upper(), "inplace",
                     unless(false, options.inplace()))
HALFTAPE_MODULE_TEXT(Threshold, "threshold", options.threshold(), "value", options.value(),
                     "inplace", unless(false, options.inplace()))

}  // namespace halftape::nn
