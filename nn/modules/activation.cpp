#include "halftape/nn/modules/activation.h"

#include "halftape/autograd/ops/softmax.h"
#include "halftape/autograd/ops/unary.h"

namespace halftape::nn {

Tensor ReLUImpl::forward(const Tensor& x) const { return relu(x); }
Tensor TanhImpl::forward(const Tensor& x) const { return tanh(x); }
Tensor SigmoidImpl::forward(const Tensor& x) const { return sigmoid(x); }
Tensor SiLUImpl::forward(const Tensor& x) const { return silu(x); }
Tensor GELUImpl::forward(const Tensor& x) const { return gelu(x, options.approximate()); }
Tensor SoftmaxImpl::forward(const Tensor& x) const { return softmax(x, options.dim()); }
Tensor LogSoftmaxImpl::forward(const Tensor& x) const { return log_softmax(x, options.dim()); }

void ReLUImpl::pretty_print(std::ostream& out) const { out << "halftape::nn::ReLU()"; }
void TanhImpl::pretty_print(std::ostream& out) const { out << "halftape::nn::Tanh()"; }
void SigmoidImpl::pretty_print(std::ostream& out) const { out << "halftape::nn::Sigmoid()"; }
void SiLUImpl::pretty_print(std::ostream& out) const { out << "halftape::nn::SiLU()"; }
void GELUImpl::pretty_print(std::ostream& out) const { out << "halftape::nn::GELU()"; }
void SoftmaxImpl::pretty_print(std::ostream& out) const {
  out << "halftape::nn::Softmax(dim=" << options.dim() << ')';
}
void LogSoftmaxImpl::pretty_print(std::ostream& out) const {
  out << "halftape::nn::LogSoftmax(dim=" << options.dim() << ')';
}

}  // namespace halftape::nn
