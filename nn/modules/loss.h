// Losses as modules.
#pragma once
#include "halftape/nn/cloneable.h"
#include "halftape/nn/functional/loss.h"

namespace halftape::nn {

/// A module around a loss function of two tensors and its options.
template <class Options, Tensor (*function)(const Tensor&, const Tensor&, const Options&)>
class LossModule : public Cloneable<LossModule<Options, function>> {
 public:
  explicit LossModule(Options o = {}) : options(std::move(o)) {}
  Tensor forward(const Tensor& input, const Tensor& target) const {
    return function(input, target, options);
  }
  Options options;
};

/// The same of three.
template <class Options,
          Tensor (*function)(const Tensor&, const Tensor&, const Tensor&, const Options&)>
class LossModule3 : public Module {
 public:
  explicit LossModule3(Options o = {}) : options(std::move(o)) {}
  Tensor forward(const Tensor& a, const Tensor& b, const Tensor& c) const {
    return function(a, b, c, options);
  }
  Options options;
};

class CrossEntropyLossImpl
    : public LossModule<CrossEntropyLossOptions, &functional::cross_entropy> {
 public:
  using LossModule::LossModule;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(CrossEntropyLoss);

class NLLLossImpl : public LossModule<NLLLossOptions, &functional::nll_loss> {
 public:
  using LossModule::LossModule;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(NLLLoss);

class MSELossImpl : public LossModule<MSELossOptions, &functional::mse_loss> {
 public:
  using LossModule::LossModule;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(MSELoss);

class L1LossImpl : public LossModule<L1LossOptions, &functional::l1_loss> {
 public:
  using LossModule::LossModule;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(L1Loss);

class SmoothL1LossImpl : public LossModule<SmoothL1LossOptions, &functional::smooth_l1_loss> {
 public:
  using LossModule::LossModule;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(SmoothL1Loss);

class HuberLossImpl : public LossModule<HuberLossOptions, &functional::huber_loss> {
 public:
  using LossModule::LossModule;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(HuberLoss);

class KLDivLossImpl : public LossModule<KLDivLossOptions, &functional::kl_div> {
 public:
  using LossModule::LossModule;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(KLDivLoss);

class PoissonNLLLossImpl : public LossModule<PoissonNLLLossOptions, &functional::poisson_nll_loss> {
 public:
  using LossModule::LossModule;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(PoissonNLLLoss);

class GaussianNLLLossImpl
    : public LossModule3<GaussianNLLLossOptions, &functional::gaussian_nll_loss> {
 public:
  using LossModule3::LossModule3;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(GaussianNLLLoss);

class BCELossImpl : public LossModule<BCELossOptions, &functional::binary_cross_entropy> {
 public:
  using LossModule::LossModule;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(BCELoss);

class BCEWithLogitsLossImpl
    : public LossModule<BCEWithLogitsLossOptions, &functional::binary_cross_entropy_with_logits> {
 public:
  using LossModule::LossModule;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(BCEWithLogitsLoss);

class HingeEmbeddingLossImpl
    : public LossModule<HingeEmbeddingLossOptions, &functional::hinge_embedding_loss> {
 public:
  using LossModule::LossModule;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(HingeEmbeddingLoss);

class SoftMarginLossImpl : public LossModule<SoftMarginLossOptions, &functional::soft_margin_loss> {
 public:
  using LossModule::LossModule;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(SoftMarginLoss);

class MarginRankingLossImpl
    : public LossModule3<MarginRankingLossOptions, &functional::margin_ranking_loss> {
 public:
  using LossModule3::LossModule3;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(MarginRankingLoss);

class CosineEmbeddingLossImpl
    : public LossModule3<CosineEmbeddingLossOptions, &functional::cosine_embedding_loss> {
 public:
  using LossModule3::LossModule3;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(CosineEmbeddingLoss);

class MultiMarginLossImpl
    : public LossModule<MultiMarginLossOptions, &functional::multi_margin_loss> {
 public:
  using LossModule::LossModule;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(MultiMarginLoss);

class MultiLabelMarginLossImpl
    : public LossModule<MultiLabelMarginLossOptions, &functional::multilabel_margin_loss> {
 public:
  using LossModule::LossModule;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(MultiLabelMarginLoss);

class MultiLabelSoftMarginLossImpl
    : public LossModule<MultiLabelSoftMarginLossOptions, &functional::multilabel_soft_margin_loss> {
 public:
  using LossModule::LossModule;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(MultiLabelSoftMarginLoss);

class TripletMarginLossImpl
    : public LossModule3<TripletMarginLossOptions, &functional::triplet_margin_loss> {
 public:
  using LossModule3::LossModule3;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(TripletMarginLoss);

class TripletMarginWithDistanceLossImpl
    : public LossModule3<TripletMarginWithDistanceLossOptions,
                         &functional::triplet_margin_with_distance_loss> {
 public:
  using LossModule3::LossModule3;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(TripletMarginWithDistanceLoss);

}  // namespace halftape::nn
