// Dropout of elements and of channels: options, functions and modules. x has any shape, and y is
// like x; in evaluation y = x. Throws unless 0 ≤ p ≤ 1.
#pragma once
#include "halftape/autograd/ops/creation/dropout.h"
#include "halftape/core/options.h"
#include "halftape/nn/modules/common.h"

namespace halftape::nn {

struct DropoutOptions {
  DropoutOptions(double p = 0.5) : p_(p) {}  // NOLINT: as LibTorch
  HALFTAPE_ARG(double, p);              // probability that an element, or a feature, is dropped
  HALFTAPE_ARG(bool, inplace) = false;  // the result replaces the input
};
using Dropout2dOptions = DropoutOptions;
using Dropout3dOptions = DropoutOptions;
using AlphaDropoutOptions = DropoutOptions;
using FeatureAlphaDropoutOptions = DropoutOptions;

namespace functional {

struct DropoutFuncOptions {
  HALFTAPE_ARG(double, p) = 0.5;
  HALFTAPE_ARG(bool, training) = true;
  HALFTAPE_ARG(bool, inplace) = false;
};
using Dropout2dFuncOptions = DropoutFuncOptions;
using Dropout3dFuncOptions = DropoutFuncOptions;

/// LibTorch's default here, unlike that of the others, is evaluation.
struct AlphaDropoutFuncOptions {
  HALFTAPE_ARG(double, p) = 0.5;
  HALFTAPE_ARG(bool, training) = false;
  HALFTAPE_ARG(bool, inplace) = false;
};
using FeatureAlphaDropoutFuncOptions = AlphaDropoutFuncOptions;

namespace detail {
template <class Options>
Tensor dropped(Tensor (*function)(const Tensor&, double, bool), const Tensor& x, const Options& o,
               bool training) {
  const Tensor y = function(x, o.p(), training);
  return o.inplace() && !y.is_same(x) ? x.copy_(y) : y;
}
/// feature_dropout() of x (N, C, D1 … Dn), n = dims. Of any other number of dimensions, the first
/// is that of the channels, as in LibTorch.
template <int dims>
Tensor channels_dropped(const Tensor& x, double p, bool training) {
  if (!training || x.dim() == dims + 2) return halftape::feature_dropout(x, p, training);
  return halftape::feature_dropout(x.unsqueeze(0), p, training).squeeze(0);
}
}  // namespace detail

using halftape::dropout;

inline Tensor dropout(const Tensor& x, const DropoutFuncOptions& o) {
  return detail::dropped(&halftape::dropout, x, o, o.training());
}
/// Drops whole channels: x is (N, C, H, W), for dropout3d (N, C, D, H, W), or either without N. In
/// x of any other number of dimensions, as (N, C), drops what lies at one place of the first, as
/// LibTorch does; Python's F.dropout2d takes the first two for N and C.
inline Tensor dropout2d(const Tensor& x, const Dropout2dFuncOptions& o = {}) {
  return detail::dropped(&detail::channels_dropped<2>, x, o, o.training());
}
inline Tensor dropout3d(const Tensor& x, const Dropout3dFuncOptions& o = {}) {
  return detail::dropped(&detail::channels_dropped<3>, x, o, o.training());
}
/// Keeps mean 0 and variance 1, for SELU.
inline Tensor alpha_dropout(const Tensor& x, const AlphaDropoutFuncOptions& o = {}) {
  return detail::dropped(&halftape::alpha_dropout, x, o, o.training());
}
/// The same for whole channels: x is (N, C, …).
inline Tensor feature_alpha_dropout(const Tensor& x, const FeatureAlphaDropoutFuncOptions& o = {}) {
  return detail::dropped(&halftape::feature_alpha_dropout, x, o, o.training());
}

}  // namespace functional

namespace detail {
/// Throws unless 0 ≤ p ≤ 1.
class DropoutModule : public CloneableModule {
 public:
  explicit DropoutModule(const DropoutOptions& o = {}) : options(o) { DropoutModule::reset(); }
  void reset() override;
  DropoutOptions options;
};
}  // namespace detail

/// Each element is 0 with probability p and x/(1 − p) otherwise. Srivastava et al. 2014.
HALFTAPE_UNARY_MODULE(Dropout, detail::DropoutModule);
/// The same for whole channels of images, (N, C, H, W). Tompson et al. 2014, arXiv:1411.4280.
HALFTAPE_UNARY_MODULE(Dropout2d, detail::DropoutModule);
/// The same for whole channels of volumes, (N, C, D, H, W).
HALFTAPE_UNARY_MODULE(Dropout3d, detail::DropoutModule);
/// Dropout that keeps mean 0 and variance 1, for SELU. Klambauer et al. 2017, arXiv:1706.02515.
HALFTAPE_UNARY_MODULE(AlphaDropout, detail::DropoutModule);
/// The same for whole channels, (N, C, …).
HALFTAPE_UNARY_MODULE(FeatureAlphaDropout, detail::DropoutModule);

}  // namespace halftape::nn
