// Dropout, with options.
#pragma once
#include "halftape/autograd/ops/creation/dropout.h"
#include "halftape/nn/options/dropout.h"

namespace halftape::nn::functional {

namespace detail {
inline Tensor dropout(Tensor x, double p, bool training, bool inplace) {
  const Tensor y = halftape::dropout(x, p, training);
  return inplace ? x.copy_(y) : y;
}
inline Tensor feature_dropout(Tensor x, double p, bool training, bool inplace) {
  const Tensor y = halftape::feature_dropout(x, p, training);
  return inplace ? x.copy_(y) : y;
}
inline Tensor alpha_dropout(Tensor x, double p, bool training, bool inplace) {
  const Tensor y = halftape::alpha_dropout(x, p, training);
  return inplace ? x.copy_(y) : y;
}
inline Tensor feature_alpha_dropout(Tensor x, double p, bool training, bool inplace) {
  const Tensor y = halftape::feature_alpha_dropout(x, p, training);
  return inplace ? x.copy_(y) : y;
}
}  // namespace detail

using halftape::dropout;

inline Tensor dropout(Tensor x, const DropoutFuncOptions& o) {
  return detail::dropout(std::move(x), o.p(), o.training(), o.inplace());
}
/// Whole channels: x is (N, C, H, W), for dropout3d (N, C, D, H, W).
inline Tensor dropout2d(Tensor x, const Dropout2dFuncOptions& o = {}) {
  return detail::feature_dropout(std::move(x), o.p(), o.training(), o.inplace());
}
inline Tensor dropout3d(Tensor x, const Dropout3dFuncOptions& o = {}) {
  return detail::feature_dropout(std::move(x), o.p(), o.training(), o.inplace());
}
inline Tensor alpha_dropout(Tensor x, const AlphaDropoutFuncOptions& o = {}) {
  return detail::alpha_dropout(std::move(x), o.p(), o.training(), o.inplace());
}
inline Tensor feature_alpha_dropout(Tensor x, const FeatureAlphaDropoutFuncOptions& o = {}) {
  return detail::feature_alpha_dropout(std::move(x), o.p(), o.training(), o.inplace());
}

}  // namespace halftape::nn::functional
