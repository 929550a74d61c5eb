// Modules that change the size of images.
#pragma once
#include "halftape/nn/functional/upsampling.h"
#include "halftape/nn/modules/common.h"

namespace halftape::nn {

/// interpolate(): to a size, or by a factor; a list of one number holds for all dimensions.
HALFTAPE_UNARY_MODULE(Upsample, detail::WithOptions<UpsampleOptions>);
/// (…, C·r², H, W) → (…, C, H·r, W·r). Throws unless r² divides the channels.
HALFTAPE_UNARY_MODULE(PixelShuffle, detail::WithOptions<PixelShuffleOptions>);
/// The inverse: (…, C, H·r, W·r) → (…, C·r², H, W).
HALFTAPE_UNARY_MODULE(PixelUnshuffle, detail::WithOptions<PixelUnshuffleOptions>);

}  // namespace halftape::nn
