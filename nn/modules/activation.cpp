#include "halftape/nn/modules/activation.h"

#include "halftape/autograd/ops/creation/create.h"

namespace halftape::nn {

using detail::unless;

/// NameImpl::forward(x), and the options that are printed behind the name.
#define HALFTAPE_ACTIVATION(Name, y, ...)                         \
  Tensor Name##Impl::forward(const Tensor& x) const { return y; } \
  HALFTAPE_MODULE_TEXT(Name, __VA_ARGS__)
HALFTAPE_ACTIVATION(Tanh, tanh(x))
HALFTAPE_ACTIVATION(Sigmoid, sigmoid(x))
HALFTAPE_ACTIVATION(SiLU, silu(x))
HALFTAPE_ACTIVATION(Mish, mish(x))
HALFTAPE_ACTIVATION(Softsign, softsign(x))
HALFTAPE_ACTIVATION(Tanhshrink, tanhshrink(x))
HALFTAPE_ACTIVATION(LogSigmoid, log_sigmoid(x))
HALFTAPE_ACTIVATION(Hardsigmoid, hardsigmoid(x))
HALFTAPE_ACTIVATION(Hardswish, hardswish(x))
HALFTAPE_ACTIVATION(Hardshrink, functional::hardshrink(x, options), "", options.lambda())
HALFTAPE_ACTIVATION(Softshrink, functional::softshrink(x, options), "", options.lambda())
HALFTAPE_ACTIVATION(Softplus, functional::softplus(x, options), "beta", options.beta(), "threshold",
                    options.threshold())
HALFTAPE_ACTIVATION(GELU, functional::gelu(x, options))
HALFTAPE_ACTIVATION(GLU, functional::glu(x, options), "dim", options.dim())
HALFTAPE_ACTIVATION(Softmax, functional::softmax(x, options.dim()), "dim", options.dim())
HALFTAPE_ACTIVATION(LogSoftmax, functional::log_softmax(x, options.dim()), "dim", options.dim())
HALFTAPE_ACTIVATION(Softmin, functional::softmin(x, options.dim()), "dim", options.dim())
// As in LibTorch, `inplace` is printed only when it is true.
HALFTAPE_ACTIVATION(ReLU, functional::relu(x, options), "inplace", unless(false, options.inplace()))
HALFTAPE_ACTIVATION(ReLU6, functional::relu6(x, options), "inplace",
                    unless(false, options.inplace()))
HALFTAPE_ACTIVATION(ELU, functional::elu(x, options), "alpha", options.alpha(), "inplace",
                    unless(false, options.inplace()))
HALFTAPE_ACTIVATION(SELU, functional::selu(x, options), "inplace", unless(false, options.inplace()))
HALFTAPE_ACTIVATION(CELU, functional::celu(x, options), "alpha", options.alpha(), "inplace",
                    unless(false, options.inplace()))
HALFTAPE_ACTIVATION(LeakyReLU, functional::leaky_relu(x, options), "negative_slope",
                    options.negative_slope(), "inplace", unless(false, options.inplace()))
HALFTAPE_ACTIVATION(Hardtanh, functional::hardtanh(x, options), "min_val", options.min_val(),
                    "max_val", options.max_val(), "inplace", unless(false, options.inplace()))
HALFTAPE_ACTIVATION(Threshold, functional::threshold(x, options), "threshold", options.threshold(),
                    "value", options.value(), "inplace", unless(false, options.inplace()))
#undef HALFTAPE_ACTIVATION

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

void HardtanhImpl::reset() {
  HALFTAPE_CHECK(options.min_val() < options.max_val(),
                 "Hardtanh: max_val must be greater than min_val, and they are ", options.max_val(),
                 " and ", options.min_val());
}

void PReLUImpl::reset() {
  HALFTAPE_CHECK(options.num_parameters() > 0, "PReLU: num_parameters ", options.num_parameters(),
                 " must be positive");
  weight = register_parameter("weight", full({options.num_parameters()}, options.init()));
}
Tensor PReLUImpl::forward(const Tensor& x) const { return prelu(x, weight); }

HALFTAPE_MODULE_TEXT(Softmax2d)
HALFTAPE_MODULE_TEXT(PReLU, "num_parameters", options.num_parameters())
HALFTAPE_MODULE_TEXT(RReLU, "lower", options.lower(), "upper", options.upper(), "inplace",
                     unless(false, options.inplace()))

}  // namespace halftape::nn
