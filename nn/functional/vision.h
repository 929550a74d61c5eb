// Images through grids, with options.
#pragma once
#include "halftape/nn/options/vision.h"

namespace halftape::nn::functional {

using halftape::affine_grid;

/// x (N, C, H, W) read at grid (N, H', W', 2), whose points (x, y) lie in [−1, 1] → (N, C, H', W');
/// the same in three dimensions.
inline Tensor grid_sample(const Tensor& x, const Tensor& grid,
                          const GridSampleFuncOptions& o = {}) {
  return halftape::grid_sample(x, grid, o.mode(), o.padding_mode(),
                               o.align_corners().value_or(false));
}

}  // namespace halftape::nn::functional
