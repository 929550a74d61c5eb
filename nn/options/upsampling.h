// Options of functions (nn/functional/upsampling.h) and modules (nn/modules/image/upsampling.h)
// that change the size of images.
#pragma once
#include <optional>
#include <vector>

#include "halftape/autograd/ops/image/resample.h"
#include "halftape/core/options.h"
#include "halftape/nn/init.h"

namespace halftape::nn {

namespace detail {
/// An Interpolation, or kLinear, which nn::init declares as well.
class interpolation_t {
 public:
  interpolation_t(Interpolation mode) : mode_(mode) {}  // NOLINT: one is the other
  interpolation_t(init::Nonlinearity mode) : mode_(Interpolation::Linear) {  // NOLINT
    HALFTAPE_CHECK(mode == kLinear, "interpolate: a mode was expected, not a nonlinearity");
  }
  operator Interpolation() const { return mode_; }  // NOLINT

 private:
  Interpolation mode_;
};
}  // namespace detail

class UpsampleOptions {
 public:
  using mode_t = detail::interpolation_t;
  HALFTAPE_ARG(std::optional<std::vector<int64_t>>, size) = {};
  HALFTAPE_ARG(std::optional<std::vector<double>>, scale_factor) = {};
  HALFTAPE_ARG(mode_t, mode) = kNearest;
  HALFTAPE_ARG(std::optional<bool>, align_corners) = {};
};
class PixelShuffleOptions {
 public:
  PixelShuffleOptions(int64_t upscale_factor) : upscale_factor_(upscale_factor) {}  // NOLINT
  HALFTAPE_ARG(int64_t, upscale_factor);
};
class PixelUnshuffleOptions {
 public:
  PixelUnshuffleOptions(int64_t downscale_factor)
      : downscale_factor_(downscale_factor) {}  // NOLINT
  HALFTAPE_ARG(int64_t, downscale_factor);
};

namespace functional {
class InterpolateFuncOptions {
 public:
  using mode_t = nn::detail::interpolation_t;
  HALFTAPE_ARG(std::optional<std::vector<int64_t>>, size) = {};
  HALFTAPE_ARG(std::optional<std::vector<double>>, scale_factor) = {};
  HALFTAPE_ARG(mode_t, mode) = kNearest;
  HALFTAPE_ARG(std::optional<bool>, align_corners) = {};
  HALFTAPE_ARG(std::optional<bool>, recompute_scale_factor) = {};
};
}  // namespace functional

}  // namespace halftape::nn
