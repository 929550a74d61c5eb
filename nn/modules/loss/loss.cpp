#include "halftape/nn/modules/loss/loss.h"

namespace halftape::nn {

Tensor detail::own_buffer(Module& module, const char* name, const Tensor& values) {
  // Not the handle that was given: what a clone or to() does with it is the module's affair.
  return module.register_buffer(name, values.defined() ? values.detach() : Tensor());
}

namespace {

constexpr const char* name_of(Reduction reduction) {
  constexpr const char* names[] = {"kNone", "kMean", "kSum", "kBatchMean"};
  return names[static_cast<size_t>(reduction)];
}
constexpr const char* name_of(bool on) { return on ? "true" : "false"; }

}  // namespace

// As in LibTorch, which says the options of some alone, and of two not even that there are any.
void CrossEntropyLossImpl::pretty_print(std::ostream& out) const {
  out << "halftape::nn::CrossEntropyLoss()";
}
void NLLLossImpl::pretty_print(std::ostream& out) const { out << "halftape::nn::NLLLoss()"; }
void MSELossImpl::pretty_print(std::ostream& out) const { out << "halftape::nn::MSELoss()"; }
void L1LossImpl::pretty_print(std::ostream& out) const { out << "halftape::nn::L1Loss()"; }
void SmoothL1LossImpl::pretty_print(std::ostream& out) const {
  out << "halftape::nn::SmoothL1Loss";
}
void HuberLossImpl::pretty_print(std::ostream& out) const { out << "halftape::nn::HuberLoss"; }
void KLDivLossImpl::pretty_print(std::ostream& out) const { out << "halftape::nn::KLDivLoss()"; }
void PoissonNLLLossImpl::pretty_print(std::ostream& out) const {
  out << "halftape::nn::PoissonNLLLoss()";
}
void GaussianNLLLossImpl::pretty_print(std::ostream& out) const {
  out << "halftape::nn::GaussianNLLLoss()";
}
void BCELossImpl::pretty_print(std::ostream& out) const { out << "halftape::nn::BCELoss()"; }
void BCEWithLogitsLossImpl::pretty_print(std::ostream& out) const {
  out << "halftape::nn::BCEWithLogitsLoss()";
}
void SoftMarginLossImpl::pretty_print(std::ostream& out) const {
  out << "halftape::nn::SoftMarginLoss()";
}
void MarginRankingLossImpl::pretty_print(std::ostream& out) const {
  out << "halftape::nn::MarginRankingLoss()";
}
void MultiLabelMarginLossImpl::pretty_print(std::ostream& out) const {
  out << "halftape::nn::MultiLabelMarginLoss()";
}
void MultiLabelSoftMarginLossImpl::pretty_print(std::ostream& out) const {
  out << "halftape::nn::MultiLabelSoftMarginLoss()";
}
void HingeEmbeddingLossImpl::pretty_print(std::ostream& out) const {
  out << "halftape::nn::HingeEmbeddingLoss(margin=" << options.margin() << ')';
}
void CosineEmbeddingLossImpl::pretty_print(std::ostream& out) const {
  out << "halftape::nn::CosineEmbeddingLoss(margin=" << options.margin() << ')';
}
void MultiMarginLossImpl::pretty_print(std::ostream& out) const {
  out << "halftape::nn::MultiMarginLoss(p=" << options.p() << ", margin=" << options.margin()
      << ", weight=" << options.weight() << ", reduction=" << name_of(options.reduction()) << ')';
}
void TripletMarginLossImpl::pretty_print(std::ostream& out) const {
  out << "halftape::nn::TripletMarginLoss(margin=" << options.margin() << ", p=" << options.p()
      << ", eps=" << options.eps() << ", swap=" << name_of(options.swap()) << ')';
}
void TripletMarginWithDistanceLossImpl::pretty_print(std::ostream& out) const {
  out << "halftape::nn::TripletMarginWithDistanceLoss(margin=" << options.margin()
      << ", swap=" << name_of(options.swap()) << ')';
}

Tensor CTCLossImpl::forward(const Tensor& log_probs, const Tensor& targets,
                            const Tensor& input_lengths, const Tensor& target_lengths) const {
  return functional::ctc_loss(log_probs, targets, input_lengths, target_lengths, options);
}
void CTCLossImpl::pretty_print(std::ostream& out) const { out << "halftape::nn::CTCLoss()"; }

}  // namespace halftape::nn
