// Losses, and distances between vectors: options, functions and modules. Input and target of a loss
// have equal shapes unless said otherwise; other shapes throw. The result is (), or with reduction
// kNone one loss for each element or sample; the dtype is x's, computed in float32 for halves.
// autograd/ops/loss has the formulas.
#pragma once
#include <optional>

#include "halftape/autograd/ops/loss/ctc.h"
#include "halftape/autograd/ops/loss/margin_loss.h"
#include "halftape/autograd/ops/reduction/statistics.h"
#include "halftape/core/options.h"
#include "halftape/nn/modules/common.h"

namespace halftape {
inline constexpr Reduction kNone = Reduction::None, kMean = Reduction::Mean, kSum = Reduction::Sum,
                           kBatchMean = Reduction::BatchMean;
}  // namespace halftape

namespace halftape::nn {

struct CrossEntropyLossOptions {
  HALFTAPE_ARG(Tensor, weight) = {};
  HALFTAPE_ARG(Reduction, reduction) = kMean;
  HALFTAPE_ARG(int64_t, ignore_index) = -100;
  HALFTAPE_ARG(double, label_smoothing) = 0;
};
struct NLLLossOptions {
  HALFTAPE_ARG(Tensor, weight) = {};
  HALFTAPE_ARG(Reduction, reduction) = kMean;
  HALFTAPE_ARG(int64_t, ignore_index) = -100;
};

struct MSELossOptions {
  MSELossOptions(Reduction reduction = kMean) : reduction_(reduction) {}  // NOLINT: as LibTorch
  HALFTAPE_ARG(Reduction, reduction);
};
using L1LossOptions = MSELossOptions;
using SoftMarginLossOptions = MSELossOptions;
using MultiLabelMarginLossOptions = MSELossOptions;

struct SmoothL1LossOptions {
  SmoothL1LossOptions(Reduction reduction = kMean) : reduction_(reduction) {}  // NOLINT: the same
  HALFTAPE_ARG(Reduction, reduction);
  HALFTAPE_ARG(std::optional<double>, beta) = {};  // 1
};
struct HuberLossOptions {
  HuberLossOptions(Reduction reduction = kMean) : reduction_(reduction) {}  // NOLINT: the same
  HALFTAPE_ARG(Reduction, reduction);
  HALFTAPE_ARG(double, delta) = 1;
};
struct KLDivLossOptions {
  KLDivLossOptions(Reduction reduction = kMean) : reduction_(reduction) {}  // NOLINT: the same
  HALFTAPE_ARG(Reduction, reduction);  // kBatchMean: the divergence itself, by sample
  HALFTAPE_ARG(bool, log_target) = false;
};
struct PoissonNLLLossOptions {
  HALFTAPE_ARG(bool, log_input) = true;
  HALFTAPE_ARG(bool, full) = false;
  HALFTAPE_ARG(double, eps) = 1e-8;
  HALFTAPE_ARG(Reduction, reduction) = kMean;
};
struct GaussianNLLLossOptions {
  HALFTAPE_ARG(bool, full) = false;
  HALFTAPE_ARG(double, eps) = 1e-6;
  HALFTAPE_ARG(Reduction, reduction) = kMean;
};
struct BCELossOptions {
  HALFTAPE_ARG(Tensor, weight) = {};
  HALFTAPE_ARG(Reduction, reduction) = kMean;
};
using MultiLabelSoftMarginLossOptions = BCELossOptions;
struct BCEWithLogitsLossOptions {
  HALFTAPE_ARG(Tensor, weight) = {};
  HALFTAPE_ARG(Tensor, pos_weight) = {};
  HALFTAPE_ARG(Reduction, reduction) = kMean;
};

struct HingeEmbeddingLossOptions {
  HALFTAPE_ARG(double, margin) = 1;
  HALFTAPE_ARG(Reduction, reduction) = kMean;
};
struct MarginRankingLossOptions {
  HALFTAPE_ARG(double, margin) = 0;
  HALFTAPE_ARG(Reduction, reduction) = kMean;
};
using CosineEmbeddingLossOptions = MarginRankingLossOptions;
struct CTCLossOptions {
  HALFTAPE_ARG(int64_t, blank) = 0;
  HALFTAPE_ARG(Reduction, reduction) = kMean;
  HALFTAPE_ARG(bool, zero_infinity) = false;
};
struct MultiMarginLossOptions {
  HALFTAPE_ARG(int64_t, p) = 1;  // or 2
  HALFTAPE_ARG(double, margin) = 1;
  HALFTAPE_ARG(Tensor, weight) = {};
  HALFTAPE_ARG(Reduction, reduction) = kMean;
};
struct TripletMarginLossOptions {
  HALFTAPE_ARG(double, margin) = 1;
  HALFTAPE_ARG(double, p) = 2;
  HALFTAPE_ARG(double, eps) = 1e-6;
  HALFTAPE_ARG(bool, swap) = false;
  HALFTAPE_ARG(Reduction, reduction) = kMean;
};
struct TripletMarginWithDistanceLossOptions {
  using reduction_t = Reduction;
  using distance_function_t = DistanceFunction;
  HALFTAPE_ARG(std::optional<distance_function_t>, distance_function) = {};  // pairwise_distance
  HALFTAPE_ARG(double, margin) = 1;
  HALFTAPE_ARG(bool, swap) = false;
  HALFTAPE_ARG(Reduction, reduction) = kMean;
};

struct CosineSimilarityOptions {
  HALFTAPE_ARG(int64_t, dim) = 1;
  HALFTAPE_ARG(double, eps) = 1e-8;
};
struct PairwiseDistanceOptions {
  HALFTAPE_ARG(double, p) = 2;
  HALFTAPE_ARG(double, eps) = 1e-6;
  HALFTAPE_ARG(bool, keepdim) = false;
};

namespace functional {

using CrossEntropyFuncOptions = CrossEntropyLossOptions;
using NLLLossFuncOptions = NLLLossOptions;
using MSELossFuncOptions = MSELossOptions;
using L1LossFuncOptions = L1LossOptions;
using SmoothL1LossFuncOptions = SmoothL1LossOptions;
using HuberLossFuncOptions = HuberLossOptions;
using KLDivFuncOptions = KLDivLossOptions;
using PoissonNLLLossFuncOptions = PoissonNLLLossOptions;
using GaussianNLLLossFuncOptions = GaussianNLLLossOptions;
using BinaryCrossEntropyFuncOptions = BCELossOptions;
using BinaryCrossEntropyWithLogitsFuncOptions = BCEWithLogitsLossOptions;
using HingeEmbeddingLossFuncOptions = HingeEmbeddingLossOptions;
using SoftMarginLossFuncOptions = SoftMarginLossOptions;
using MarginRankingLossFuncOptions = MarginRankingLossOptions;
using CosineEmbeddingLossFuncOptions = CosineEmbeddingLossOptions;
using CTCLossFuncOptions = CTCLossOptions;
using MultiMarginLossFuncOptions = MultiMarginLossOptions;
using MultilabelMarginLossFuncOptions = MultiLabelMarginLossOptions;
using MultilabelSoftMarginLossFuncOptions = MultiLabelSoftMarginLossOptions;
using TripletMarginLossFuncOptions = TripletMarginLossOptions;
using TripletMarginWithDistanceLossFuncOptions = TripletMarginWithDistanceLossOptions;

/// nll_loss of log_softmax(x): logits x (N, C, …), target (N, …) int64 classes, or probabilities of
/// x's shape.
inline Tensor cross_entropy(const Tensor& x, const Tensor& target,
                            const CrossEntropyFuncOptions& o = {}) {
  return halftape::cross_entropy(x, target, o.weight(), o.reduction(), o.ignore_index(),
                                 o.label_smoothing());
}
/// −weight[t]·x[i, t]: log-probabilities x (N, C, …), target (N, …) int64 in [0, C) or
/// ignore_index; throws for others.
inline Tensor nll_loss(const Tensor& x, const Tensor& target, const NLLLossFuncOptions& o = {}) {
  return halftape::nll_loss(x, target, o.weight(), o.reduction(), o.ignore_index());
}
/// (x − y)².
inline Tensor mse_loss(const Tensor& x, const Tensor& y, const MSELossFuncOptions& o = {}) {
  return halftape::mse_loss(x, y, o.reduction());
}
/// |x − y|.
inline Tensor l1_loss(const Tensor& x, const Tensor& y, const L1LossFuncOptions& o = {}) {
  return halftape::l1_loss(x, y, o.reduction());
}
/// (x − y)²/(2·beta) where |x − y| < beta, |x − y| − beta/2 elsewhere.
inline Tensor smooth_l1_loss(const Tensor& x, const Tensor& y,
                             const SmoothL1LossFuncOptions& o = {}) {
  return halftape::smooth_l1_loss(x, y, o.reduction(), o.beta().value_or(1));
}
/// With beta as an argument; throws if the options have one, too.
inline Tensor smooth_l1_loss(const Tensor& x, const Tensor& y, const SmoothL1LossFuncOptions& o,
                             double beta) {
  HALFTAPE_CHECK(!o.beta(), "smooth_l1_loss: beta ", beta, " is given, and ", o.beta().value_or(0),
                 " in the options; choose one");
  return halftape::smooth_l1_loss(x, y, o.reduction(), beta);
}
/// (x − y)²/2 where |x − y| < delta, delta·(|x − y| − delta/2) elsewhere.
inline Tensor huber_loss(const Tensor& x, const Tensor& y, const HuberLossFuncOptions& o = {}) {
  return halftape::huber_loss(x, y, o.reduction(), o.delta());
}
/// y·(ln y − x) for log-probabilities x and probabilities y, with log_target their logarithms.
inline Tensor kl_div(const Tensor& x, const Tensor& y, const KLDivFuncOptions& o = {}) {
  return halftape::kl_div(x, y, o.reduction(), o.log_target());
}
/// eˣ − y·x for counts y, or x − y·ln(x + eps) without log_input.
inline Tensor poisson_nll_loss(const Tensor& x, const Tensor& y,
                               const PoissonNLLLossFuncOptions& o = {}) {
  return halftape::poisson_nll_loss(x, y, o.log_input(), o.full(), o.eps(), o.reduction());
}
/// (ln v + (x − y)²/v)/2 with v = max(var, eps); var: as x, its last dimension 1 or missing.
inline Tensor gaussian_nll_loss(const Tensor& x, const Tensor& y, const Tensor& var,
                                const GaussianNLLLossFuncOptions& o = {}) {
  return halftape::gaussian_nll_loss(x, y, var, o.full(), o.eps(), o.reduction());
}
/// −weight·(y·ln p + (1 − y)·ln(1 − p)). Throws under autocast: half has no digits near 0 and 1.
inline Tensor binary_cross_entropy(const Tensor& p, const Tensor& y,
                                   const BinaryCrossEntropyFuncOptions& o = {}) {
  return halftape::binary_cross_entropy(p, y, o.weight(), o.reduction());
}
/// −weight·(pos_weight·y·ln σ(x) + (1 − y)·ln(1 − σ(x))), stable for any x.
inline Tensor binary_cross_entropy_with_logits(
    const Tensor& x, const Tensor& y, const BinaryCrossEntropyWithLogitsFuncOptions& o = {}) {
  return halftape::binary_cross_entropy_with_logits(x, y, o.weight(), o.pos_weight(),
                                                    o.reduction());
}
/// x where y is 1, max(0, margin − x) where y is −1.
inline Tensor hinge_embedding_loss(const Tensor& x, const Tensor& y,
                                   const HingeEmbeddingLossFuncOptions& o = {}) {
  return halftape::hinge_embedding_loss(x, y, o.margin(), o.reduction());
}
/// ln(1 + e^(−y·x)) for labels y of ±1.
inline Tensor soft_margin_loss(const Tensor& x, const Tensor& y,
                               const SoftMarginLossFuncOptions& o = {}) {
  return halftape::soft_margin_loss(x, y, o.reduction());
}
/// max(0, margin − y·(a − b)) for labels y of ±1; the three broadcast.
inline Tensor margin_ranking_loss(const Tensor& a, const Tensor& b, const Tensor& y,
                                  const MarginRankingLossFuncOptions& o = {}) {
  return halftape::margin_ranking_loss(a, b, y, o.margin(), o.reduction());
}
/// a, b (N, D), y (N): 1 − cos(a, b) where y is 1, max(0, cos(a, b) − margin) where y is −1.
inline Tensor cosine_embedding_loss(const Tensor& a, const Tensor& b, const Tensor& y,
                                    const CosineEmbeddingLossFuncOptions& o = {}) {
  return halftape::cosine_embedding_loss(a, b, y, o.margin(), o.reduction());
}
/// x (N, C), target (N) int64: Σ weight[t]·max(0, margin − x[t] + x[i])ᵖ/C over i ≠ t; p is 1 or 2.
inline Tensor multi_margin_loss(const Tensor& x, const Tensor& target,
                                const MultiMarginLossFuncOptions& o = {}) {
  return halftape::multi_margin_loss(x, target, o.p(), o.margin(), o.weight(), o.reduction());
}
/// x (N, C), target (N, C) int64: each sample's classes, up to the first −1.
inline Tensor multilabel_margin_loss(const Tensor& x, const Tensor& target,
                                     const MultilabelMarginLossFuncOptions& o = {}) {
  return halftape::multilabel_margin_loss(x, target, o.reduction());
}
/// binary_cross_entropy_with_logits of x (N, C), averaged over the classes.
inline Tensor multilabel_soft_margin_loss(const Tensor& x, const Tensor& y,
                                          const MultilabelSoftMarginLossFuncOptions& o = {}) {
  return halftape::multilabel_soft_margin_loss(x, y, o.weight(), o.reduction());
}
/// max(0, margin + d(anchor, positive) − d(anchor, negative)), d: the p-norm over the last
/// dimension.
inline Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive,
                                  const Tensor& negative,
                                  const TripletMarginLossFuncOptions& o = {}) {
  return halftape::triplet_margin_loss(anchor, positive, negative, o.margin(), o.p(), o.eps(),
                                       o.swap(), o.reduction());
}
/// The same with a distance function of two tensors; none: pairwise_distance.
inline Tensor triplet_margin_with_distance_loss(
    const Tensor& anchor, const Tensor& positive, const Tensor& negative,
    const TripletMarginWithDistanceLossFuncOptions& o = {}) {
  return halftape::triplet_margin_with_distance_loss(
      anchor, positive, negative, o.distance_function().value_or(DistanceFunction()), o.margin(),
      o.swap(), o.reduction());
}

/// log_probs (T, N, C), integer targets (N, S) and lengths (N): −ln of the probability that the
/// steps spell the targets.
inline Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                       const Tensor& target_lengths, const CTCLossFuncOptions& o = {}) {
  return halftape::ctc_loss(log_probs, targets, input_lengths, target_lengths, o.blank(),
                            o.reduction(), o.zero_infinity());
}

using CosineSimilarityFuncOptions = CosineSimilarityOptions;
using PairwiseDistanceFuncOptions = PairwiseDistanceOptions;

/// a·b / (max(‖a‖, eps)·max(‖b‖, eps)) along `dim`, which is removed; a and b broadcast.
inline Tensor cosine_similarity(const Tensor& a, const Tensor& b,
                                const CosineSimilarityFuncOptions& o = {}) {
  return halftape::cosine_similarity(a, b, o.dim(), o.eps());
}
/// ‖xᵢ − xⱼ‖ₚ of every pair of rows i < j of x (m, k).
inline Tensor pdist(const Tensor& x, double p = 2) { return halftape::pdist(x, p); }
/// The p-norm of a − b + eps over the last dimension, which goes without keepdim; a and b
/// broadcast.
inline Tensor pairwise_distance(const Tensor& a, const Tensor& b,
                                const PairwiseDistanceFuncOptions& o = {}) {
  return halftape::pairwise_distance(a, b, o.p(), o.eps(), o.keepdim());
}

}  // namespace functional

namespace detail {
/// Registers a buffer with the values of a tensor, which may be undefined, and returns it.
Tensor own_buffer(Module& module, const char* name, const Tensor& values);

/// The base of all losses: options, whose weights are buffers.
template <class Options>
class LossModule : public CloneableModule {
 public:
  explicit LossModule(Options o = {}) : options(std::move(o)) { LossModule::reset(); }
  void reset() override {
    if constexpr (requires(Options o) { o.weight(); })
      options.weight(own_buffer(*this, "weight", options.weight()));
    if constexpr (requires(Options o) { o.pos_weight(); })
      options.pos_weight(own_buffer(*this, "pos_weight", options.pos_weight()));
  }
  Options options;
};
}  // namespace detail

/// A module around a loss function of two tensors and options. `weight` and `pos_weight` of the
/// options are buffers of these names.
template <class Options, Tensor (*function)(const Tensor&, const Tensor&, const Options&)>
class LossModule : public detail::LossModule<Options> {
 public:
  using detail::LossModule<Options>::LossModule;
  Tensor forward(const Tensor& input, const Tensor& target) const {
    const Module::PlaceScope scope(*this);
    return scope.result(function(input, target, this->options));
  }
};

/// The same for three tensors.
template <class Options,
          Tensor (*function)(const Tensor&, const Tensor&, const Tensor&, const Options&)>
class LossModule3 : public detail::LossModule<Options> {
 public:
  using detail::LossModule<Options>::LossModule;
  Tensor forward(const Tensor& a, const Tensor& b, const Tensor& c) const {
    const Module::PlaceScope scope(*this);
    return scope.result(function(a, b, c, this->options));
  }
};

/// Declares NameImpl, a Base around functional::function and NameOptions, and its holder Name.
#define HALFTAPE_LOSS_MODULE(Name, Base, function)                                              \
  class Name##Impl : public Cloneable<Name##Impl, Base<Name##Options, &functional::function>> { \
   public:                                                                                      \
    using Cloneable::Cloneable;                                                                 \
    void pretty_print(std::ostream& out) const override;                                        \
  };                                                                                            \
  HALFTAPE_MODULE(Name)
HALFTAPE_LOSS_MODULE(CrossEntropyLoss, LossModule, cross_entropy);
HALFTAPE_LOSS_MODULE(NLLLoss, LossModule, nll_loss);
HALFTAPE_LOSS_MODULE(MSELoss, LossModule, mse_loss);
HALFTAPE_LOSS_MODULE(L1Loss, LossModule, l1_loss);
HALFTAPE_LOSS_MODULE(SmoothL1Loss, LossModule, smooth_l1_loss);
HALFTAPE_LOSS_MODULE(HuberLoss, LossModule, huber_loss);
HALFTAPE_LOSS_MODULE(KLDivLoss, LossModule, kl_div);
HALFTAPE_LOSS_MODULE(PoissonNLLLoss, LossModule, poisson_nll_loss);
HALFTAPE_LOSS_MODULE(GaussianNLLLoss, LossModule3, gaussian_nll_loss);
HALFTAPE_LOSS_MODULE(BCELoss, LossModule, binary_cross_entropy);
HALFTAPE_LOSS_MODULE(BCEWithLogitsLoss, LossModule, binary_cross_entropy_with_logits);
HALFTAPE_LOSS_MODULE(HingeEmbeddingLoss, LossModule, hinge_embedding_loss);
HALFTAPE_LOSS_MODULE(SoftMarginLoss, LossModule, soft_margin_loss);
HALFTAPE_LOSS_MODULE(MarginRankingLoss, LossModule3, margin_ranking_loss);
HALFTAPE_LOSS_MODULE(CosineEmbeddingLoss, LossModule3, cosine_embedding_loss);
HALFTAPE_LOSS_MODULE(MultiMarginLoss, LossModule, multi_margin_loss);
HALFTAPE_LOSS_MODULE(MultiLabelMarginLoss, LossModule, multilabel_margin_loss);
HALFTAPE_LOSS_MODULE(MultiLabelSoftMarginLoss, LossModule, multilabel_soft_margin_loss);
HALFTAPE_LOSS_MODULE(TripletMarginLoss, LossModule3, triplet_margin_loss);
HALFTAPE_LOSS_MODULE(TripletMarginWithDistanceLoss, LossModule3, triplet_margin_with_distance_loss);
#undef HALFTAPE_LOSS_MODULE

/// halftape::ctc_loss of log_probs (T, N, C), targets and their lengths.
class CTCLossImpl : public Cloneable<CTCLossImpl, detail::LossModule<CTCLossOptions>> {
 public:
  using Cloneable::Cloneable;
  Tensor forward(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                 const Tensor& target_lengths) const;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(CTCLoss);

/// a·b / (max(‖a‖, eps)·max(‖b‖, eps)) along a dimension, of tensors that broadcast.
class CosineSimilarityImpl : public Cloneable<CosineSimilarityImpl> {
 public:
  explicit CosineSimilarityImpl(const CosineSimilarityOptions& o = {}) : options(o) {}
  Tensor forward(const Tensor& a, const Tensor& b) const {
    const PlaceScope scope(*this);
    return scope.result(functional::cosine_similarity(a, b, options));
  }
  void pretty_print(std::ostream& out) const override;
  CosineSimilarityOptions options;
};
HALFTAPE_MODULE(CosineSimilarity);

/// The p-norm of a − b + eps along the last dimension, of tensors that broadcast.
class PairwiseDistanceImpl : public Cloneable<PairwiseDistanceImpl> {
 public:
  explicit PairwiseDistanceImpl(const PairwiseDistanceOptions& o = {}) : options(o) {}
  Tensor forward(const Tensor& a, const Tensor& b) const {
    const PlaceScope scope(*this);
    return scope.result(functional::pairwise_distance(a, b, options));
  }
  void pretty_print(std::ostream& out) const override;
  PairwiseDistanceOptions options;
};
HALFTAPE_MODULE(PairwiseDistance);

}  // namespace halftape::nn
