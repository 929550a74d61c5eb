// Options of Fold and Unfold, for functions (nn/functional/fold.h) and modules
// (nn/modules/image/fold.h).
#pragma once
#include "halftape/core/expanding_array.h"
#include "halftape/core/options.h"

namespace halftape::nn {

class FoldOptions {
 public:
  FoldOptions(ExpandingArray<2> output_size, ExpandingArray<2> kernel_size)
      : output_size_(output_size), kernel_size_(kernel_size) {}
  HALFTAPE_ARG(ExpandingArray<2>, output_size);
  HALFTAPE_ARG(ExpandingArray<2>, kernel_size);
  HALFTAPE_ARG(ExpandingArray<2>, dilation) = 1;
  HALFTAPE_ARG(ExpandingArray<2>, padding) = 0;
  HALFTAPE_ARG(ExpandingArray<2>, stride) = 1;
};
class UnfoldOptions {
 public:
  UnfoldOptions(ExpandingArray<2> kernel_size)
      : kernel_size_(kernel_size) {}  // NOLINT: as LibTorch
  HALFTAPE_ARG(ExpandingArray<2>, kernel_size);
  HALFTAPE_ARG(ExpandingArray<2>, dilation) = 1;
  HALFTAPE_ARG(ExpandingArray<2>, padding) = 0;
  HALFTAPE_ARG(ExpandingArray<2>, stride) = 1;
};

}  // namespace halftape::nn
