// Dropout, with options: x of any shape, y like x. Throws unless 0 ≤ p ≤ 1. With `inplace` the
// result replaces x.
#pragma once
#include "halftape/autograd/ops/creation/dropout.h"
#include "halftape/nn/options/dropout.h"

namespace halftape::nn::functional {

namespace detail {
template <class Options>
Tensor dropped(Tensor (*function)(const Tensor&, double, bool), Tensor x, const Options& o,
               bool training) {
  const Tensor y = function(x, o.p(), training);
  return o.inplace() ? x.copy_(y) : y;
}
}  // namespace detail

using halftape::dropout;

inline Tensor dropout(Tensor x, const DropoutFuncOptions& o) {
  return detail::dropped(&halftape::dropout, std::move(x), o, o.training());
}
/// Drops whole channels: x is (N, C, H, W), for dropout3d (N, C, D, H, W).
inline Tensor dropout2d(Tensor x, const Dropout2dFuncOptions& o = {}) {
  return detail::dropped(&halftape::feature_dropout, std::move(x), o, o.training());
}
inline Tensor dropout3d(Tensor x, const Dropout3dFuncOptions& o = {}) {
  return detail::dropped(&halftape::feature_dropout, std::move(x), o, o.training());
}
/// Keeps mean 0 and variance 1, for SELU.
inline Tensor alpha_dropout(Tensor x, const AlphaDropoutFuncOptions& o = {}) {
  return detail::dropped(&halftape::alpha_dropout, std::move(x), o, o.training());
}
/// The same for whole channels: x is (N, C, …).
inline Tensor feature_alpha_dropout(Tensor x, const FeatureAlphaDropoutFuncOptions& o = {}) {
  return detail::dropped(&halftape::feature_alpha_dropout, std::move(x), o, o.training());
}

}  // namespace halftape::nn::functional
