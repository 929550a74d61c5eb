#include "halftape/nn/modules/activation.h"

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/nn/functional/activation.h"

namespace halftape::nn {

namespace {
/// "halftape::nn::ELU(alpha=1, inplace=true)"; `inplace` is said where it is so, as in LibTorch.
void print(std::ostream& out, const char* name,
           std::initializer_list<std::pair<const char*, double>> options, bool inplace = false) {
  out << "halftape::nn::" << name << '(';
  const char* comma = "";
  for (const auto& [label, value] : options) {
    out << comma << label << value;
    comma = ", ";
  }
  out << (inplace ? comma : "") << (inplace ? "inplace=true" : "") << ')';
}
}  // namespace

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

void TanhImpl::pretty_print(std::ostream& out) const { out << "halftape::nn::Tanh()"; }
void SigmoidImpl::pretty_print(std::ostream& out) const { out << "halftape::nn::Sigmoid()"; }
void SiLUImpl::pretty_print(std::ostream& out) const { out << "halftape::nn::SiLU()"; }
void MishImpl::pretty_print(std::ostream& out) const { out << "halftape::nn::Mish()"; }
void SoftsignImpl::pretty_print(std::ostream& out) const { out << "halftape::nn::Softsign()"; }
void TanhshrinkImpl::pretty_print(std::ostream& out) const { out << "halftape::nn::Tanhshrink()"; }
void LogSigmoidImpl::pretty_print(std::ostream& out) const { out << "halftape::nn::LogSigmoid()"; }
void HardsigmoidImpl::pretty_print(std::ostream& out) const {
  out << "halftape::nn::Hardsigmoid()";
}
void HardswishImpl::pretty_print(std::ostream& out) const { out << "halftape::nn::Hardswish()"; }
void ReLUImpl::pretty_print(std::ostream& out) const { print(out, "ReLU", {}, options.inplace()); }
void ReLU6Impl::pretty_print(std::ostream& out) const {
  print(out, "ReLU6", {}, options.inplace());
}
void ELUImpl::pretty_print(std::ostream& out) const {
  print(out, "ELU", {{"alpha=", options.alpha()}}, options.inplace());
}
void SELUImpl::pretty_print(std::ostream& out) const { print(out, "SELU", {}, options.inplace()); }
void CELUImpl::pretty_print(std::ostream& out) const {
  print(out, "CELU", {{"alpha=", options.alpha()}}, options.inplace());
}
void LeakyReLUImpl::pretty_print(std::ostream& out) const {
  print(out, "LeakyReLU", {{"negative_slope=", options.negative_slope()}}, options.inplace());
}
void HardtanhImpl::pretty_print(std::ostream& out) const {
  print(out, "Hardtanh", {{"min_val=", options.min_val()}, {"max_val=", options.max_val()}},
        options.inplace());
}
void RReLUImpl::pretty_print(std::ostream& out) const {
  print(out, "RReLU", {{"lower=", options.lower()}, {"upper=", options.upper()}},
        options.inplace());
}
void ThresholdImpl::pretty_print(std::ostream& out) const {
  print(out, "Threshold", {{"threshold=", options.threshold()}, {"value=", options.value()}},
        options.inplace());
}
void HardshrinkImpl::pretty_print(std::ostream& out) const {
  print(out, "Hardshrink", {{"", options.lambda()}});
}
void SoftshrinkImpl::pretty_print(std::ostream& out) const {
  print(out, "Softshrink", {{"", options.lambda()}});
}
void SoftplusImpl::pretty_print(std::ostream& out) const {
  print(out, "Softplus", {{"beta=", options.beta()}, {"threshold=", options.threshold()}});
}
void GELUImpl::pretty_print(std::ostream& out) const { out << "halftape::nn::GELU()"; }
void GLUImpl::pretty_print(std::ostream& out) const {
  print(out, "GLU", {{"dim=", options.dim()}});
}
void SoftmaxImpl::pretty_print(std::ostream& out) const {
  print(out, "Softmax", {{"dim=", options.dim()}});
}
void LogSoftmaxImpl::pretty_print(std::ostream& out) const {
  print(out, "LogSoftmax", {{"dim=", options.dim()}});
}
void SoftminImpl::pretty_print(std::ostream& out) const {
  print(out, "Softmin", {{"dim=", options.dim()}});
}
void Softmax2dImpl::pretty_print(std::ostream& out) const { out << "halftape::nn::Softmax2d()"; }
void PReLUImpl::pretty_print(std::ostream& out) const {
  out << "halftape::nn::PReLU(num_parameters=" << options.num_parameters() << ')';
}

}  // namespace halftape::nn
