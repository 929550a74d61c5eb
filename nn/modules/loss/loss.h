// Losses as modules.
#pragma once
#include "halftape/nn/cloneable.h"
#include "halftape/nn/functional/loss.h"

namespace halftape::nn {

namespace detail {
/// Registers a buffer of the tensor's values, if it has any, and gives it back.
Tensor own_buffer(Module& module, const char* name, const Tensor& values);

/// What all losses have in common: the options, whose weights are buffers.
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

/// A module around a loss function of two tensors and its options. Where the options have a weight
/// or a pos_weight, it is a buffer of that name.
template <class Options, Tensor (*function)(const Tensor&, const Tensor&, const Options&)>
class LossModule : public detail::LossModule<Options> {
 public:
  using detail::LossModule<Options>::LossModule;
  Tensor forward(const Tensor& input, const Tensor& target) const {
    return function(input, target, this->options);
  }
};

/// The same of three.
template <class Options,
          Tensor (*function)(const Tensor&, const Tensor&, const Tensor&, const Options&)>
class LossModule3 : public detail::LossModule<Options> {
 public:
  using detail::LossModule<Options>::LossModule;
  Tensor forward(const Tensor& a, const Tensor& b, const Tensor& c) const {
    return function(a, b, c, this->options);
  }
};

class CrossEntropyLossImpl
    : public Cloneable<CrossEntropyLossImpl,
                       LossModule<CrossEntropyLossOptions, &functional::cross_entropy>> {
 public:
  using Cloneable::Cloneable;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(CrossEntropyLoss);

class NLLLossImpl
    : public Cloneable<NLLLossImpl, LossModule<NLLLossOptions, &functional::nll_loss>> {
 public:
  using Cloneable::Cloneable;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(NLLLoss);

class MSELossImpl
    : public Cloneable<MSELossImpl, LossModule<MSELossOptions, &functional::mse_loss>> {
 public:
  using Cloneable::Cloneable;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(MSELoss);

class L1LossImpl : public Cloneable<L1LossImpl, LossModule<L1LossOptions, &functional::l1_loss>> {
 public:
  using Cloneable::Cloneable;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(L1Loss);

class SmoothL1LossImpl
    : public Cloneable<SmoothL1LossImpl,
                       LossModule<SmoothL1LossOptions, &functional::smooth_l1_loss>> {
 public:
  using Cloneable::Cloneable;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(SmoothL1Loss);

class HuberLossImpl
    : public Cloneable<HuberLossImpl, LossModule<HuberLossOptions, &functional::huber_loss>> {
 public:
  using Cloneable::Cloneable;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(HuberLoss);

class KLDivLossImpl
    : public Cloneable<KLDivLossImpl, LossModule<KLDivLossOptions, &functional::kl_div>> {
 public:
  using Cloneable::Cloneable;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(KLDivLoss);

class PoissonNLLLossImpl
    : public Cloneable<PoissonNLLLossImpl,
                       LossModule<PoissonNLLLossOptions, &functional::poisson_nll_loss>> {
 public:
  using Cloneable::Cloneable;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(PoissonNLLLoss);

class GaussianNLLLossImpl
    : public Cloneable<GaussianNLLLossImpl,
                       LossModule3<GaussianNLLLossOptions, &functional::gaussian_nll_loss>> {
 public:
  using Cloneable::Cloneable;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(GaussianNLLLoss);

class BCELossImpl
    : public Cloneable<BCELossImpl, LossModule<BCELossOptions, &functional::binary_cross_entropy>> {
 public:
  using Cloneable::Cloneable;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(BCELoss);

class BCEWithLogitsLossImpl
    : public Cloneable<
          BCEWithLogitsLossImpl,
          LossModule<BCEWithLogitsLossOptions, &functional::binary_cross_entropy_with_logits>> {
 public:
  using Cloneable::Cloneable;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(BCEWithLogitsLoss);

class HingeEmbeddingLossImpl
    : public Cloneable<HingeEmbeddingLossImpl,
                       LossModule<HingeEmbeddingLossOptions, &functional::hinge_embedding_loss>> {
 public:
  using Cloneable::Cloneable;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(HingeEmbeddingLoss);

class SoftMarginLossImpl
    : public Cloneable<SoftMarginLossImpl,
                       LossModule<SoftMarginLossOptions, &functional::soft_margin_loss>> {
 public:
  using Cloneable::Cloneable;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(SoftMarginLoss);

class MarginRankingLossImpl
    : public Cloneable<MarginRankingLossImpl,
                       LossModule3<MarginRankingLossOptions, &functional::margin_ranking_loss>> {
 public:
  using Cloneable::Cloneable;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(MarginRankingLoss);

class CosineEmbeddingLossImpl
    : public Cloneable<CosineEmbeddingLossImpl, LossModule3<CosineEmbeddingLossOptions,
                                                            &functional::cosine_embedding_loss>> {
 public:
  using Cloneable::Cloneable;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(CosineEmbeddingLoss);

class MultiMarginLossImpl
    : public Cloneable<MultiMarginLossImpl,
                       LossModule<MultiMarginLossOptions, &functional::multi_margin_loss>> {
 public:
  using Cloneable::Cloneable;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(MultiMarginLoss);

class MultiLabelMarginLossImpl
    : public Cloneable<MultiLabelMarginLossImpl, LossModule<MultiLabelMarginLossOptions,
                                                            &functional::multilabel_margin_loss>> {
 public:
  using Cloneable::Cloneable;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(MultiLabelMarginLoss);

class MultiLabelSoftMarginLossImpl
    : public Cloneable<
          MultiLabelSoftMarginLossImpl,
          LossModule<MultiLabelSoftMarginLossOptions, &functional::multilabel_soft_margin_loss>> {
 public:
  using Cloneable::Cloneable;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(MultiLabelSoftMarginLoss);

class TripletMarginLossImpl
    : public Cloneable<TripletMarginLossImpl,
                       LossModule3<TripletMarginLossOptions, &functional::triplet_margin_loss>> {
 public:
  using Cloneable::Cloneable;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(TripletMarginLoss);

class TripletMarginWithDistanceLossImpl
    : public Cloneable<TripletMarginWithDistanceLossImpl,
                       LossModule3<TripletMarginWithDistanceLossOptions,
                                   &functional::triplet_margin_with_distance_loss>> {
 public:
  using Cloneable::Cloneable;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(TripletMarginWithDistanceLoss);

/// halftape::ctc_loss of log_probs (T, N, C), targets and their lengths.
class CTCLossImpl : public Cloneable<CTCLossImpl, detail::LossModule<CTCLossOptions>> {
 public:
  using Cloneable::Cloneable;
  Tensor forward(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                 const Tensor& target_lengths) const;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(CTCLoss);

}  // namespace halftape::nn
