// Functions that change the size of images, with options.
#pragma once
#include "halftape/nn/options/upsampling.h"

namespace halftape::nn::functional {

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

}  // namespace halftape::nn::functional
