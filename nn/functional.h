// Functions with options, as torch::nn::functional. What they compute stands in autograd/ops.
#pragma once
#include "halftape/autograd/ops/binary.h"
#include "halftape/autograd/ops/einsum.h"
#include "halftape/autograd/ops/index.h"
#include "halftape/autograd/ops/loss.h"
#include "halftape/autograd/ops/matmul.h"
#include "halftape/autograd/ops/pointwise.h"
#include "halftape/autograd/ops/random.h"
#include "halftape/autograd/ops/shape.h"
#include "halftape/autograd/ops/softmax.h"
#include "halftape/autograd/ops/statistics.h"
#include "halftape/autograd/ops/unary.h"
#include "halftape/autograd/ops/view.h"
#include "halftape/core/options.h"
#include "halftape/nn/activation_options.h"

namespace halftape {
inline constexpr Reduction kNone = Reduction::None, kMean = Reduction::Mean, kSum = Reduction::Sum;
}

namespace halftape::nn {

class CrossEntropyLossOptions {
 public:
  HALFTAPE_ARG(Tensor, weight) = {};
  HALFTAPE_ARG(Reduction, reduction) = kMean;
  HALFTAPE_ARG(int64_t, ignore_index) = -100;
  HALFTAPE_ARG(double, label_smoothing) = 0;
};
class NLLLossOptions {
 public:
  HALFTAPE_ARG(Tensor, weight) = {};
  HALFTAPE_ARG(Reduction, reduction) = kMean;
  HALFTAPE_ARG(int64_t, ignore_index) = -100;
};
class MSELossOptions {
 public:
  MSELossOptions(Reduction reduction = kMean) : reduction_(reduction) {}  // NOLINT: as LibTorch
  HALFTAPE_ARG(Reduction, reduction);
};
class BCELossOptions {
 public:
  HALFTAPE_ARG(Tensor, weight) = {};
  HALFTAPE_ARG(Reduction, reduction) = kMean;
};
class BCEWithLogitsLossOptions {
 public:
  HALFTAPE_ARG(Tensor, weight) = {};
  HALFTAPE_ARG(Tensor, pos_weight) = {};
  HALFTAPE_ARG(Reduction, reduction) = kMean;
};
class CosineSimilarityOptions {
 public:
  HALFTAPE_ARG(int64_t, dim) = 1;
  HALFTAPE_ARG(double, eps) = 1e-8;
};
class PairwiseDistanceOptions {
 public:
  HALFTAPE_ARG(double, p) = 2;
  HALFTAPE_ARG(double, eps) = 1e-6;
  HALFTAPE_ARG(bool, keepdim) = false;
};

namespace functional {

using halftape::bilinear;
using halftape::dropout;
using halftape::flatten;
using halftape::gelu;
using halftape::hardsigmoid;
using halftape::hardswish;
using halftape::linear;
using halftape::log_softmax;
using halftape::mish;
using halftape::one_hot;
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

// Those with `inplace` take a handle, whose tensor they may write to.
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
inline Tensor gelu(const Tensor& x, const GELUFuncOptions& o) {
  return halftape::gelu(x, o.approximate());
}
inline Tensor glu(const Tensor& x, const GLUFuncOptions& o = {}) {
  return halftape::glu(x, o.dim());
}
inline Tensor logsigmoid(const Tensor& x) { return log_sigmoid(x); }

using CrossEntropyFuncOptions = CrossEntropyLossOptions;
using NLLLossFuncOptions = NLLLossOptions;
using MSELossFuncOptions = MSELossOptions;
using BinaryCrossEntropyFuncOptions = BCELossOptions;
using BinaryCrossEntropyWithLogitsFuncOptions = BCEWithLogitsLossOptions;

using CosineSimilarityFuncOptions = CosineSimilarityOptions;
using PairwiseDistanceFuncOptions = PairwiseDistanceOptions;

inline Tensor cosine_similarity(const Tensor& a, const Tensor& b,
                                const CosineSimilarityFuncOptions& o = {}) {
  return halftape::cosine_similarity(a, b, o.dim(), o.eps());
}
inline Tensor pairwise_distance(const Tensor& a, const Tensor& b,
                                const PairwiseDistanceFuncOptions& o = {}) {
  return halftape::pairwise_distance(a, b, o.p(), o.eps(), o.keepdim());
}

/// `pad`: two numbers for each dimension, from the last one on.
class PadFuncOptions {
 public:
  PadFuncOptions(std::vector<int64_t> pad) : pad_(std::move(pad)) {}  // NOLINT: as LibTorch
  HALFTAPE_ARG(std::vector<int64_t>, pad);
  HALFTAPE_ARG(PadMode, mode) = kConstant;
  HALFTAPE_ARG(double, value) = 0;
};

inline Tensor pad(const Tensor& x, const PadFuncOptions& o) {
  return halftape::pad(x, o.pad(), o.mode(), o.value());
}
inline Tensor cross_entropy(const Tensor& x, const Tensor& target,
                            const CrossEntropyFuncOptions& o = {}) {
  return halftape::cross_entropy(x, target, o.weight(), o.reduction(), o.ignore_index(),
                                 o.label_smoothing());
}
inline Tensor nll_loss(const Tensor& x, const Tensor& target, const NLLLossFuncOptions& o = {}) {
  return halftape::nll_loss(x, target, o.weight(), o.reduction(), o.ignore_index());
}
inline Tensor mse_loss(const Tensor& x, const Tensor& y, const MSELossFuncOptions& o = {}) {
  return halftape::mse_loss(x, y, o.reduction());
}
inline Tensor binary_cross_entropy(const Tensor& p, const Tensor& y,
                                   const BinaryCrossEntropyFuncOptions& o = {}) {
  return halftape::binary_cross_entropy(p, y, o.weight(), o.reduction());
}
inline Tensor binary_cross_entropy_with_logits(
    const Tensor& x, const Tensor& y, const BinaryCrossEntropyWithLogitsFuncOptions& o = {}) {
  return halftape::binary_cross_entropy_with_logits(x, y, o.weight(), o.pos_weight(),
                                                    o.reduction());
}

}  // namespace functional
}  // namespace halftape::nn
