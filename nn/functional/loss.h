// Losses, with options.
#pragma once
#include "halftape/nn/options/loss.h"

namespace halftape::nn::functional {

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
inline Tensor l1_loss(const Tensor& x, const Tensor& y, const L1LossFuncOptions& o = {}) {
  return halftape::l1_loss(x, y, o.reduction());
}
inline Tensor smooth_l1_loss(const Tensor& x, const Tensor& y,
                             const SmoothL1LossFuncOptions& o = {}) {
  return halftape::smooth_l1_loss(x, y, o.reduction(), o.beta().value_or(1));
}
/// Throws if beta stands in the options, too.
inline Tensor smooth_l1_loss(const Tensor& x, const Tensor& y, const SmoothL1LossFuncOptions& o,
                             double beta) {
  HALFTAPE_CHECK(!o.beta(), "smooth_l1_loss: beta ", beta, " is given, and ", o.beta().value_or(0),
                 " in the options; choose one");
  return halftape::smooth_l1_loss(x, y, o.reduction(), beta);
}
inline Tensor huber_loss(const Tensor& x, const Tensor& y, const HuberLossFuncOptions& o = {}) {
  return halftape::huber_loss(x, y, o.reduction(), o.delta());
}
inline Tensor kl_div(const Tensor& x, const Tensor& y, const KLDivFuncOptions& o = {}) {
  return halftape::kl_div(x, y, o.reduction(), o.log_target());
}
inline Tensor poisson_nll_loss(const Tensor& x, const Tensor& y,
                               const PoissonNLLLossFuncOptions& o = {}) {
  return halftape::poisson_nll_loss(x, y, o.log_input(), o.full(), o.eps(), o.reduction());
}
inline Tensor gaussian_nll_loss(const Tensor& x, const Tensor& y, const Tensor& var,
                                const GaussianNLLLossFuncOptions& o = {}) {
  return halftape::gaussian_nll_loss(x, y, var, o.full(), o.eps(), o.reduction());
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
inline Tensor hinge_embedding_loss(const Tensor& x, const Tensor& y,
                                   const HingeEmbeddingLossFuncOptions& o = {}) {
  return halftape::hinge_embedding_loss(x, y, o.margin(), o.reduction());
}
inline Tensor soft_margin_loss(const Tensor& x, const Tensor& y,
                               const SoftMarginLossFuncOptions& o = {}) {
  return halftape::soft_margin_loss(x, y, o.reduction());
}
inline Tensor margin_ranking_loss(const Tensor& a, const Tensor& b, const Tensor& y,
                                  const MarginRankingLossFuncOptions& o = {}) {
  return halftape::margin_ranking_loss(a, b, y, o.margin(), o.reduction());
}
inline Tensor cosine_embedding_loss(const Tensor& a, const Tensor& b, const Tensor& y,
                                    const CosineEmbeddingLossFuncOptions& o = {}) {
  return halftape::cosine_embedding_loss(a, b, y, o.margin(), o.reduction());
}
inline Tensor multi_margin_loss(const Tensor& x, const Tensor& target,
                                const MultiMarginLossFuncOptions& o = {}) {
  return halftape::multi_margin_loss(x, target, o.p(), o.margin(), o.weight(), o.reduction());
}
inline Tensor multilabel_margin_loss(const Tensor& x, const Tensor& target,
                                     const MultilabelMarginLossFuncOptions& o = {}) {
  return halftape::multilabel_margin_loss(x, target, o.reduction());
}
inline Tensor multilabel_soft_margin_loss(const Tensor& x, const Tensor& y,
                                          const MultilabelSoftMarginLossFuncOptions& o = {}) {
  return halftape::multilabel_soft_margin_loss(x, y, o.weight(), o.reduction());
}
inline Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive,
                                  const Tensor& negative,
                                  const TripletMarginLossFuncOptions& o = {}) {
  return halftape::triplet_margin_loss(anchor, positive, negative, o.margin(), o.p(), o.eps(),
                                       o.swap(), o.reduction());
}
inline Tensor triplet_margin_with_distance_loss(
    const Tensor& anchor, const Tensor& positive, const Tensor& negative,
    const TripletMarginWithDistanceLossFuncOptions& o = {}) {
  return halftape::triplet_margin_with_distance_loss(
      anchor, positive, negative, o.distance_function().value_or(DistanceFunction()), o.margin(),
      o.swap(), o.reduction());
}

inline Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                       const Tensor& target_lengths, const CTCLossFuncOptions& o = {}) {
  return halftape::ctc_loss(log_probs, targets, input_lengths, target_lengths, o.blank(),
                            o.reduction(), o.zero_infinity());
}

}  // namespace halftape::nn::functional
