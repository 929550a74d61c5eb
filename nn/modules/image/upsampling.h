// Resizing images and sampling them at the points of a grid: options, functions and modules.
#pragma once
#include <optional>
#include <vector>

#include "halftape/autograd/ops/image/grid.h"
#include "halftape/autograd/ops/image/resample.h"
#include "halftape/core/options.h"
#include "halftape/nn/init.h"
#include "halftape/nn/modules/common.h"
#include "halftape/nn/modules/image/conv.h"

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

/// A GridPadding, or kZeros, which convolution options declare as well.
class grid_padding_t {
 public:
  grid_padding_t(GridPadding padding) : padding_(padding) {}        // NOLINT: one is the other
  grid_padding_t(PadMode padding) : padding_(GridPadding::Zeros) {  // NOLINT
    HALFTAPE_CHECK(padding == kZeros,
                   "grid_sample: padding_mode is kZeros, kBorder or kReflection");
  }
  operator GridPadding() const { return padding_; }  // NOLINT

 private:
  GridPadding padding_;
};
}  // namespace detail

struct UpsampleOptions {
  using mode_t = detail::interpolation_t;
  HALFTAPE_ARG(std::optional<std::vector<int64_t>>, size) = {};
  HALFTAPE_ARG(std::optional<std::vector<double>>, scale_factor) = {};
  HALFTAPE_ARG(mode_t, mode) = kNearest;
  HALFTAPE_ARG(std::optional<bool>, align_corners) = {};
};
struct PixelShuffleOptions {
  PixelShuffleOptions(int64_t upscale_factor) : upscale_factor_(upscale_factor) {}  // NOLINT
  HALFTAPE_ARG(int64_t, upscale_factor);
};
struct PixelUnshuffleOptions {
  PixelUnshuffleOptions(int64_t downscale_factor)
      : downscale_factor_(downscale_factor) {}  // NOLINT
  HALFTAPE_ARG(int64_t, downscale_factor);
};

namespace functional {

struct InterpolateFuncOptions {
  using mode_t = nn::detail::interpolation_t;
  HALFTAPE_ARG(std::optional<std::vector<int64_t>>, size) = {};
  HALFTAPE_ARG(std::optional<std::vector<double>>, scale_factor) = {};
  HALFTAPE_ARG(mode_t, mode) = kNearest;
  HALFTAPE_ARG(std::optional<bool>, align_corners) = {};
  HALFTAPE_ARG(std::optional<bool>, recompute_scale_factor) = {};
};

struct GridSampleFuncOptions {
  using mode_t = Interpolation;
  using padding_mode_t = nn::detail::grid_padding_t;
  HALFTAPE_ARG(mode_t, mode) = kBilinear;
  HALFTAPE_ARG(padding_mode_t, padding_mode) = kZeros;
  HALFTAPE_ARG(std::optional<bool>, align_corners) = {};
};

using halftape::pixel_shuffle;
using halftape::pixel_unshuffle;
using PixelShuffleFuncOptions = PixelShuffleOptions;
using PixelUnshuffleFuncOptions = PixelUnshuffleOptions;

/// (N, C, lengths…) → (N, C, size…) by `mode`; throws unless just one of size and scale_factor is
/// given.
inline Tensor interpolate(const Tensor& x, const InterpolateFuncOptions& o = {}) {
  return halftape::interpolate(x, o.size(), o.scale_factor(), o.mode(),
                               o.align_corners().value_or(false),
                               o.recompute_scale_factor().value_or(false));
}
/// (…, C·r², H, W) → (…, C, H·r, W·r); throws unless r² divides the channels. Unshuffle is the
/// inverse.
inline Tensor pixel_shuffle(const Tensor& x, const PixelShuffleFuncOptions& o) {
  return halftape::pixel_shuffle(x, o.upscale_factor());
}
inline Tensor pixel_unshuffle(const Tensor& x, const PixelUnshuffleFuncOptions& o) {
  return halftape::pixel_unshuffle(x, o.downscale_factor());
}

using halftape::affine_grid;

/// x (N, C, H, W) read at grid (N, H', W', 2), whose points (x, y) lie in [−1, 1] → (N, C, H', W');
/// the same in three dimensions.
inline Tensor grid_sample(const Tensor& x, const Tensor& grid,
                          const GridSampleFuncOptions& o = {}) {
  return halftape::grid_sample(x, grid, o.mode(), o.padding_mode(),
                               o.align_corners().value_or(false));
}

}  // namespace functional

/// interpolate(): to a size, or by a factor; a list of one number holds for all dimensions.
HALFTAPE_UNARY_MODULE(Upsample, detail::WithOptions<UpsampleOptions>);
/// (…, C·r², H, W) → (…, C, H·r, W·r). Throws unless r² divides the channels.
HALFTAPE_UNARY_MODULE(PixelShuffle, detail::WithOptions<PixelShuffleOptions>);
/// The inverse: (…, C, H·r, W·r) → (…, C·r², H, W).
HALFTAPE_UNARY_MODULE(PixelUnshuffle, detail::WithOptions<PixelUnshuffleOptions>);

}  // namespace halftape::nn
