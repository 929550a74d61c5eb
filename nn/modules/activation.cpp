#include "halftape/nn/modules/activation.h"

#include "halftape/autograd/ops/creation/create.h"

namespace halftape::nn {

using detail::unless;

HALFTAPE_UNARY_FORWARD(Tanh, tanh(x))
HALFTAPE_UNARY_FORWARD(Sigmoid, sigmoid(x))
HALFTAPE_UNARY_FORWARD(SiLU, silu(x))
HALFTAPE_UNARY_FORWARD(Mish, mish(x))
HALFTAPE_UNARY_FORWARD(Softsign, softsign(x))
HALFTAPE_UNARY_FORWARD(Tanhshrink, tanhshrink(x))
HALFTAPE_UNARY_FORWARD(LogSigmoid, log_sigmoid(x))
HALFTAPE_UNARY_FORWARD(Hardsigmoid, hardsigmoid(x))
HALFTAPE_UNARY_FORWARD(Hardswish, hardswish(x))
HALFTAPE_UNARY_FORWARD(Hardshrink, functional::hardshrink(x, options), "", options.lambda())
HALFTAPE_UNARY_FORWARD(Softshrink, functional::softshrink(x, options), "", options.lambda())
HALFTAPE_UNARY_FORWARD(Softplus, functional::softplus(x, options), "beta", options.beta(),
                       "threshold", options.threshold())
HALFTAPE_UNARY_FORWARD(GELU, functional::gelu(x, options))
HALFTAPE_UNARY_FORWARD(GLU, functional::glu(x, options), "dim", options.dim())
HALFTAPE_UNARY_FORWARD(Softmax, functional::softmax(x, options.dim()), "dim", options.dim())
HALFTAPE_UNARY_FORWARD(LogSoftmax, functional::log_softmax(x, options.dim()), "dim", options.dim())
HALFTAPE_UNARY_FORWARD(Softmin, functional::softmin(x, options.dim()), "dim", options.dim())
// As in LibTorch, `inplace` is printed only when it is true.
HALFTAPE_UNARY_FORWARD(ReLU, functional::relu(x, options), "inplace",
                       unless(false, options.inplace()))
HALFTAPE_UNARY_FORWARD(ReLU6, functional::relu6(x, options), "inplace",
                       unless(false, options.inplace()))
HALFTAPE_UNARY_FORWARD(ELU, functional::elu(x, options), "alpha", options.alpha(), "inplace",
                       unless(false, options.inplace()))
HALFTAPE_UNARY_FORWARD(SELU, functional::selu(x, options), "inplace",
                       unless(false, options.inplace()))
HALFTAPE_UNARY_FORWARD(CELU, functional::celu(x, options), "alpha", options.alpha(), "inplace",
                       unless(false, options.inplace()))
HALFTAPE_UNARY_FORWARD(LeakyReLU, functional::leaky_relu(x, options), "negative_slope",
                       options.negative_slope(), "inplace", unless(false, options.inplace()))
HALFTAPE_UNARY_FORWARD(Hardtanh, functional::hardtanh(x, options), "min_val", options.min_val(),
                       "max_val", options.max_val(), "inplace", unless(false, options.inplace()))
HALFTAPE_UNARY_FORWARD(Threshold, functional::threshold(x, options), "threshold",
                       options.threshold(), "value", options.value(), "inplace",
                       unless(false, options.inplace()))
HALFTAPE_UNARY_FORWARD(RReLU,
                       functional::rrelu(x, functional::RReLUFuncOptions()
                                                .lower(options.lower())
                                                .upper(options.upper())
                                                .training(is_training())
                                                .inplace(options.inplace())),
                       "lower", options.lower(), "upper", options.upper(), "inplace",
                       unless(false, options.inplace()))
HALFTAPE_UNARY_FORWARD(PReLU, prelu(x, weight), "num_parameters", options.num_parameters())

Tensor Softmax2dImpl::forward(const Tensor& x) const {
  const PlaceScope scope(*this);
  HALFTAPE_CHECK(x.dim() == 3 || x.dim() == 4,
                 "Softmax2d: the input has to be (N, C, H, W) or (C, H, W), and is ", x.sizes());
  return scope.result(functional::softmax(x, -3));
}
HALFTAPE_MODULE_TEXT(Softmax2d)

void HardtanhImpl::reset() {
  HALFTAPE_CHECK(options.min_val() < options.max_val(),
                 "Hardtanh: max_val must be greater than min_val, and they are ", options.max_val(),
                 " and ", options.min_val());
}

void PReLUImpl::reset() {
  detail::check_positive("PReLU", "num_parameters", options.num_parameters());
  weight = register_parameter("weight", full({options.num_parameters()}, options.init()));
}

}  // namespace halftape::nn
