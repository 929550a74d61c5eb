// Functions with options, as torch::nn::functional. What they compute stands in autograd/ops.
#pragma once
#include "halftape/autograd/ops/einsum.h"
#include "halftape/autograd/ops/index.h"
#include "halftape/autograd/ops/loss.h"
#include "halftape/autograd/ops/matmul.h"
#include "halftape/autograd/ops/random.h"
#include "halftape/autograd/ops/shape.h"
#include "halftape/autograd/ops/softmax.h"
#include "halftape/autograd/ops/statistics.h"
#include "halftape/autograd/ops/unary.h"
#include "halftape/autograd/ops/view.h"
#include "halftape/core/options.h"

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
using halftape::linear;
using halftape::log_softmax;
using halftape::one_hot;
using halftape::relu;
using halftape::sigmoid;
using halftape::silu;
using halftape::softmax;
using halftape::softmin;
using halftape::softplus;
using halftape::tanh;

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
