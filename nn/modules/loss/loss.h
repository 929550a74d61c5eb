// Losses as modules: nn/functional/loss.h has the formulas, shapes and dtypes.
#pragma once
#include "halftape/nn/functional/loss.h"
#include "halftape/nn/modules/common.h"

namespace halftape::nn {

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
    return function(input, target, this->options);
  }
};

/// The same for three tensors.
template <class Options,
          Tensor (*function)(const Tensor&, const Tensor&, const Tensor&, const Options&)>
class LossModule3 : public detail::LossModule<Options> {
 public:
  using detail::LossModule<Options>::LossModule;
  Tensor forward(const Tensor& a, const Tensor& b, const Tensor& c) const {
    return function(a, b, c, this->options);
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

}  // namespace halftape::nn
