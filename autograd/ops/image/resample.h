// Images in other sizes: by interpolation, and by moving channels into space.
#pragma once
#include "halftape/autograd/tensor.h"

namespace halftape {

/// The value at a place between elements: that of the element before it (as PyTorch has always
/// rounded), that of the nearest one, a line through two, a cubic through four; or the mean of an
/// area (adaptive pooling).
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

/// x (N, C, lengths…) with other lengths: `size`, or ⌊length·scale_factor⌋; exactly one is given.
/// Elements are areas, and their centres are mapped; with align_corners they are points, and the
/// outermost keep their places. The distance between outputs is 1/scale_factor, or with
/// `recompute_scale_factor` the ratio of the lengths. Halves are computed in float32 and rounded
/// once. Under autocast: float32, except Area.
Tensor interpolate(const Tensor& x, const std::optional<std::vector<int64_t>>& size,
                   const std::optional<std::vector<double>>& scale_factor = {},
                   Interpolation mode = kNearest, bool align_corners = false,
                   bool recompute_scale_factor = false);

/// (…, C·r², H, W) → (…, C, H·r, W·r).  Shi et al. 2016, arXiv:1609.05158.
Tensor pixel_shuffle(const Tensor& x, int64_t upscale_factor);
/// pixel_shuffle's inverse: (…, C, H·r, W·r) → (…, C·r², H, W).
Tensor pixel_unshuffle(const Tensor& x, int64_t downscale_factor);

}  // namespace halftape
