// Activations, with options: (…) → (…) in the dtype of x. nn/modules/activation.h has the formulas.
// `inplace` writes the result into x; it throws for a leaf that requires grad.
#pragma once
#include "halftape/autograd/ops/creation/random.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/pointwise.h"
#include "halftape/autograd/ops/elementwise/unary.h"
#include "halftape/autograd/ops/layout/shape.h"
#include "halftape/autograd/ops/reduction/softmax.h"
#include "halftape/nn/options/activation.h"

namespace halftape::nn::functional {

using halftape::gelu;
using halftape::hardsigmoid;
using halftape::hardswish;
using halftape::log_softmax;
using halftape::mish;
using halftape::prelu;
using halftape::relu;
using halftape::sigmoid;
using halftape::silu;
using halftape::softmax;
using halftape::softmin;
using halftape::softplus;
using halftape::softsign;
using halftape::tanh;
using halftape::tanhshrink;

using ReLUFuncOptions = ReLUOptions;
using ReLU6FuncOptions = ReLU6Options;
using ELUFuncOptions = ELUOptions;
using SELUFuncOptions = SELUOptions;
using CELUFuncOptions = CELUOptions;
using LeakyReLUFuncOptions = LeakyReLUOptions;
using HardtanhFuncOptions = HardtanhOptions;
using ThresholdFuncOptions = ThresholdOptions;
using HardshrinkFuncOptions = HardshrinkOptions;
using SoftshrinkFuncOptions = SoftshrinkOptions;
using SoftplusFuncOptions = SoftplusOptions;
using GELUFuncOptions = GELUOptions;
using GLUFuncOptions = GLUOptions;

// x by value where `inplace` may write to its tensor.
inline Tensor relu(Tensor x, const ReLUFuncOptions& o) {
  return o.inplace() ? relu_(x) : halftape::relu(x);
}
inline Tensor relu6(Tensor x, const ReLU6FuncOptions& o = {}) {
  return o.inplace() ? relu6_(x) : halftape::relu6(x);
}
inline Tensor elu(Tensor x, const ELUFuncOptions& o = {}) {
  return o.inplace() ? elu_(x, o.alpha()) : halftape::elu(x, o.alpha());
}
inline Tensor selu(Tensor x, const SELUFuncOptions& o = {}) {
  return o.inplace() ? selu_(x) : halftape::selu(x);
}
inline Tensor celu(Tensor x, const CELUFuncOptions& o = {}) {
  return o.inplace() ? celu_(x, o.alpha()) : halftape::celu(x, o.alpha());
}
inline Tensor leaky_relu(Tensor x, const LeakyReLUFuncOptions& o = {}) {
  const double slope = o.negative_slope();
  return o.inplace() ? leaky_relu_(x, slope) : halftape::leaky_relu(x, slope);
}
/// Draws a slope for each element where the options say training, else takes their mean.
inline Tensor rrelu(Tensor x, const RReLUFuncOptions& o = {}) {
  const Tensor y = halftape::rrelu(x, o.lower(), o.upper(), o.training());
  return o.inplace() ? x.copy_(y) : y;
}
inline Tensor hardtanh(Tensor x, const HardtanhFuncOptions& o = {}) {
  return o.inplace() ? hardtanh_(x, o.min_val(), o.max_val())
                     : halftape::hardtanh(x, o.min_val(), o.max_val());
}
inline Tensor threshold(Tensor x, const ThresholdFuncOptions& o) {
  return o.inplace() ? threshold_(x, o.threshold(), o.value())
                     : halftape::threshold(x, o.threshold(), o.value());
}
inline Tensor hardshrink(const Tensor& x, const HardshrinkFuncOptions& o = {}) {
  return halftape::hardshrink(x, o.lambda());
}
inline Tensor softshrink(const Tensor& x, const SoftshrinkFuncOptions& o = {}) {
  return halftape::softshrink(x, o.lambda());
}
inline Tensor softplus(const Tensor& x, const SoftplusFuncOptions& o) {
  return halftape::softplus(x, o.beta(), o.threshold());
}
/// Throws unless `approximate` is "none" or "tanh".
inline Tensor gelu(const Tensor& x, const GELUFuncOptions& o) {
  return halftape::gelu(x, o.approximate());
}
/// Halves the size of dimension `dim`; throws if it is odd.
inline Tensor glu(const Tensor& x, const GLUFuncOptions& o = {}) {
  return halftape::glu(x, o.dim());
}
/// Along `dim`, after a conversion to `dtype` if one is given; so are the next two.
inline Tensor softmax(const Tensor& x, const SoftmaxFuncOptions& o) {
  return halftape::softmax(x, o.dim(), o.dtype());
}
inline Tensor log_softmax(const Tensor& x, const LogSoftmaxFuncOptions& o) {
  return halftape::log_softmax(x, o.dim(), o.dtype());
}
inline Tensor softmin(const Tensor& x, const SoftminFuncOptions& o) {
  return halftape::softmin(x, o.dim(), o.dtype());
}
/// softmax((logits + Gumbel noise)/tau); with `hard` one-hot, with the gradient of the soft one.
/// Jang et al. 2016, arXiv:1611.01144.
inline Tensor gumbel_softmax(const Tensor& logits, const GumbelSoftmaxFuncOptions& o = {}) {
  return halftape::gumbel_softmax(logits, o.tau(), o.hard(), o.dim());
}
inline Tensor logsigmoid(const Tensor& x) { return log_sigmoid(x); }

}  // namespace halftape::nn::functional
