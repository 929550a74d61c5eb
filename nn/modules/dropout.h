// Dropout of elements and of features. Active in training alone: in evaluation y = x.
#pragma once
#include "halftape/nn/cloneable.h"
#include "halftape/nn/options/dropout.h"

namespace halftape::nn {

namespace detail {
/// What they share; p must be between 0 and 1.
template <class Derived>
class AnyDropout : public Cloneable<Derived> {
 public:
  explicit AnyDropout(const DropoutOptions& o = {}) : options(o) { AnyDropout::reset(); }
  void reset() override;
  DropoutOptions options;
};
}  // namespace detail

/// Each element is 0 with probability p and x/(1 − p) otherwise. Srivastava et al. 2014.
class DropoutImpl : public detail::AnyDropout<DropoutImpl> {
 public:
  using AnyDropout::AnyDropout;
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(Dropout);

/// The same for whole channels of images, (N, C, H, W). Tompson et al. 2014, arXiv:1411.4280.
class Dropout2dImpl : public detail::AnyDropout<Dropout2dImpl> {
 public:
  using AnyDropout::AnyDropout;
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(Dropout2d);

/// The same for whole channels of volumes, (N, C, D, H, W).
class Dropout3dImpl : public detail::AnyDropout<Dropout3dImpl> {
 public:
  using AnyDropout::AnyDropout;
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(Dropout3d);

/// Dropout that keeps mean 0 and variance 1, for SELU. Klambauer et al. 2017, arXiv:1706.02515.
class AlphaDropoutImpl : public detail::AnyDropout<AlphaDropoutImpl> {
 public:
  using AnyDropout::AnyDropout;
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(AlphaDropout);

/// The same for whole channels, (N, C, …).
class FeatureAlphaDropoutImpl : public detail::AnyDropout<FeatureAlphaDropoutImpl> {
 public:
  using AnyDropout::AnyDropout;
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
};
HALFTAPE_MODULE(FeatureAlphaDropout);

}  // namespace halftape::nn
