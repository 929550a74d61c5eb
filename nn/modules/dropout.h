// Dropout of elements and of channels, in training only: in evaluation y = x.
#pragma once
#include "halftape/nn/modules/common.h"
#include "halftape/nn/options/dropout.h"

namespace halftape::nn {

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
