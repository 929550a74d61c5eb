// Losses, with options.
#pragma once
#include "halftape/nn/options/loss.h"

namespace halftape::nn::functional {

using CrossEntropyFuncOptions = CrossEntropyLossOptions;
using NLLLossFuncOptions = NLLLossOptions;
using MSELossFuncOptions = MSELossOptions;
using BinaryCrossEntropyFuncOptions = BCELossOptions;
using BinaryCrossEntropyWithLogitsFuncOptions = BCEWithLogitsLossOptions;

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

}  // namespace halftape::nn::functional
