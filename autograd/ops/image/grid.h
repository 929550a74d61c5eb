// Sampling images at a grid of points, and the grids of affine maps.
#pragma once
#include "halftape/autograd/ops/image/resample.h"
#include "halftape/autograd/ops/layout/shape.h"

namespace halftape {

/// The values beyond the edges of an image: zeros, the element at the edge, or its mirror image.
enum class GridPadding : uint8_t { Zeros, Border, Reflection };
inline constexpr GridPadding kBorder = GridPadding::Border, kReflection = GridPadding::Reflection;

/// x (N, C, H, W) at the points (x, y) of grid (N, H′, W′, 2) → (N, C, H′, W′); and volumes
/// (N, C, D, H, W) at the points (x, y, z) of (N, D′, H′, W′, 3), where kBilinear is trilinear. −1
/// and 1 are the image's edges, or with align_corners the middles of its outermost elements.
/// `mode`: kBilinear or kNearest. Points that are not finite lie beyond the edges. Halves are
/// computed in float32 and rounded once. Under autocast: Widest.
Tensor grid_sample(const Tensor& x, const Tensor& grid, Interpolation mode = kBilinear,
                   GridPadding padding = GridPadding::Zeros, bool align_corners = false);
/// The grid (N, H, W, 2) of images of `size` (N, C, H, W) under affine maps theta (N, 2, 3): the
/// points theta·(x, y, 1). Likewise (N, D, H, W, 3) of volumes (N, C, D, H, W) and theta (N, 3, 4).
Tensor affine_grid(const Tensor& theta, const Dims& size, bool align_corners = false);

}  // namespace halftape
