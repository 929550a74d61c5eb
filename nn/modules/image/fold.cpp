#include "halftape/nn/modules/image/fold.h"

namespace halftape::nn {

HALFTAPE_MODULE_TEXT(Fold, "output_size", options.output_size(), "kernel_size",
                     options.kernel_size(), "dilation", options.dilation(), "padding",
                     options.padding(), "stride", options.stride())
HALFTAPE_MODULE_TEXT(Unfold, "kernel_size", options.kernel_size(), "dilation", options.dilation(),
                     "padding", options.padding(), "stride", options.stride())

}  // namespace halftape::nn
