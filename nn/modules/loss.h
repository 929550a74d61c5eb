// Losses as modules.
#pragma once
#include "halftape/nn/functional/loss.h"
#include "halftape/nn/module.h"

namespace halftape::nn {

/// A module around a loss function and its options.
template <class Options, Tensor (*function)(const Tensor&, const Tensor&, const Options&)>
class LossModule : public Module {
 public:
  explicit LossModule(Options o = {}) : options(std::move(o)) {}
  Tensor forward(const Tensor& input, const Tensor& target) const {
    return function(input, target, options);
  }
  Options options;
};

using CrossEntropyLossImpl = LossModule<CrossEntropyLossOptions, &functional::cross_entropy>;
using NLLLossImpl = LossModule<NLLLossOptions, &functional::nll_loss>;
using MSELossImpl = LossModule<MSELossOptions, &functional::mse_loss>;
using BCELossImpl = LossModule<BCELossOptions, &functional::binary_cross_entropy>;
using BCEWithLogitsLossImpl =
    LossModule<BCEWithLogitsLossOptions, &functional::binary_cross_entropy_with_logits>;
HALFTAPE_MODULE(CrossEntropyLoss);
HALFTAPE_MODULE(NLLLoss);
HALFTAPE_MODULE(MSELoss);
HALFTAPE_MODULE(BCELoss);
HALFTAPE_MODULE(BCEWithLogitsLoss);

}  // namespace halftape::nn
