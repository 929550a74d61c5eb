// Options of grid_sample().
#pragma once
#include <optional>

#include "halftape/autograd/ops/image/grid.h"
#include "halftape/core/options.h"
#include "halftape/nn/options/conv.h"

namespace halftape::nn {

namespace detail {
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

namespace functional {
class GridSampleFuncOptions {
 public:
  using mode_t = Interpolation;
  using padding_mode_t = nn::detail::grid_padding_t;
  HALFTAPE_ARG(mode_t, mode) = kBilinear;
  HALFTAPE_ARG(padding_mode_t, padding_mode) = kZeros;
  HALFTAPE_ARG(std::optional<bool>, align_corners) = {};
};
}  // namespace functional

}  // namespace halftape::nn
