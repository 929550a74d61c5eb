// What changes the size of images, as modules.
#pragma once
#include "halftape/nn/cloneable.h"
#include "halftape/nn/functional/upsampling.h"

namespace halftape::nn {

/// interpolate(): to a size, or by a factor (one number in the list: for all dimensions).
class UpsampleImpl : public Cloneable<UpsampleImpl> {
 public:
  explicit UpsampleImpl(const UpsampleOptions& o = {}) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  UpsampleOptions options;
};
HALFTAPE_MODULE(Upsample);

/// (…, C·r², H, W) → (…, C, H·r, W·r).
class PixelShuffleImpl : public Cloneable<PixelShuffleImpl> {
 public:
  explicit PixelShuffleImpl(const PixelShuffleOptions& o) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  PixelShuffleOptions options;
};
HALFTAPE_MODULE(PixelShuffle);

class PixelUnshuffleImpl : public Cloneable<PixelUnshuffleImpl> {
 public:
  explicit PixelUnshuffleImpl(const PixelUnshuffleOptions& o) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  PixelUnshuffleOptions options;
};
HALFTAPE_MODULE(PixelUnshuffle);

}  // namespace halftape::nn
