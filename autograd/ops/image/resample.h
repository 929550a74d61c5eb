// Images of other sizes: between their elements, and by moving channels into space.
#pragma once
#include "halftape/autograd/tensor.h"

namespace halftape {

/// What stands at a place between elements: the one before it (as PyTorch has always rounded), the
/// nearest one, a line through two, a cubic through four; or the mean of the area (adaptive
/// pooling).
enum class Interpolation : uint8_t {
  Nearest,
  NearestExact,
  Linear,     // of (N, C, L)
  Bilinear,   // of (N, C, H, W)
  Trilinear,  // of (N, C, D, H, W)
  Bicubic,    // of (N, C, H, W); may overshoot
  Area,
};
inline constexpr Interpolation kNearest = Interpolation::Nearest,
                               kNearestExact = Interpolation::NearestExact,
                               kBilinear = Interpolation::Bilinear,
                               kTrilinear = Interpolation::Trilinear,
                               kBicubic = Interpolation::Bicubic, kArea = Interpolation::Area;

/// x (N, C, lengths…) with other lengths: `size`, or ⌊length·scale_factor⌋; one of the two is
/// given. Elements are areas, whose centres are mapped; with align_corners they are points, of
/// which the outermost keep their places. `recompute_scale_factor`: what is mapped is the ratio of
/// the sizes, not scale_factor itself. Halves are computed in float32 and rounded once. Under
/// autocast: float32, but for Area.
Tensor interpolate(const Tensor& x, const std::optional<std::vector<int64_t>>& size,
                   const std::optional<std::vector<double>>& scale_factor = {},
                   Interpolation mode = kNearest, bool align_corners = false,
                   bool recompute_scale_factor = false);

/// (…, C·r², H, W) → (…, C, H·r, W·r).  Shi et al. 2016, arXiv:1609.05158.
Tensor pixel_shuffle(const Tensor& x, int64_t upscale_factor);
/// The other way.
Tensor pixel_unshuffle(const Tensor& x, int64_t downscale_factor);

}  // namespace halftape
