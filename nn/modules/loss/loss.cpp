#include "halftape/nn/modules/loss/loss.h"

namespace halftape::nn {

Tensor detail::own_buffer(Module& module, const char* name, const Tensor& values) {
  // A handle of its own: to() and clone() must not change the caller's.
  return module.register_buffer(name, values.defined() ? values.detach() : Tensor());
}

namespace {

constexpr const char* name_of(Reduction reduction) {
  constexpr const char* names[] = {"kNone", "kMean", "kSum", "kBatchMean"};
  return names[static_cast<size_t>(reduction)];
}
}  // namespace

// As in LibTorch, which prints the options of a few losses only.
HALFTAPE_MODULE_TEXT(CrossEntropyLoss)
HALFTAPE_MODULE_TEXT(NLLLoss)
HALFTAPE_MODULE_TEXT(MSELoss)
HALFTAPE_MODULE_TEXT(L1Loss)
HALFTAPE_MODULE_TEXT(KLDivLoss)
HALFTAPE_MODULE_TEXT(PoissonNLLLoss)
HALFTAPE_MODULE_TEXT(GaussianNLLLoss)
HALFTAPE_MODULE_TEXT(BCELoss)
HALFTAPE_MODULE_TEXT(BCEWithLogitsLoss)
HALFTAPE_MODULE_TEXT(SoftMarginLoss)
HALFTAPE_MODULE_TEXT(MarginRankingLoss)
HALFTAPE_MODULE_TEXT(MultiLabelMarginLoss)
HALFTAPE_MODULE_TEXT(MultiLabelSoftMarginLoss)
HALFTAPE_MODULE_TEXT(CTCLoss)
HALFTAPE_MODULE_TEXT(HingeEmbeddingLoss, "margin", options.margin())
HALFTAPE_MODULE_TEXT(CosineEmbeddingLoss, "margin", options.margin())
HALFTAPE_MODULE_TEXT(MultiMarginLoss, "p", options.p(), "margin", options.margin(), "weight",
                     options.weight(), "reduction", name_of(options.reduction()))
HALFTAPE_MODULE_TEXT(TripletMarginLoss, "margin", options.margin(), "p", options.p(), "eps",
                     options.eps(), "swap", options.swap())
HALFTAPE_MODULE_TEXT(TripletMarginWithDistanceLoss, "margin", options.margin(), "swap",
                     options.swap())
// Without brackets in LibTorch, too.
void SmoothL1LossImpl::pretty_print(std::ostream& out) const {
  out << "halftape::nn::SmoothL1Loss";
}
void HuberLossImpl::pretty_print(std::ostream& out) const { out << "halftape::nn::HuberLoss"; }

HALFTAPE_MODULE_TEXT(CosineSimilarity, "dim", options.dim(), "eps", options.eps())
HALFTAPE_MODULE_TEXT(PairwiseDistance, "p", options.p(), "eps", options.eps(), "keepdim",
                     options.keepdim())

Tensor CTCLossImpl::forward(const Tensor& log_probs, const Tensor& targets,
                            const Tensor& input_lengths, const Tensor& target_lengths) const {
  const PlaceScope scope(*this);
  return scope.result(
      functional::ctc_loss(log_probs, targets, input_lengths, target_lengths, options));
}

}  // namespace halftape::nn
