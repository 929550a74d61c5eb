// Windows of images as columns and back, as modules.
#pragma once
#include "halftape/nn/functional/fold.h"
#include "halftape/nn/modules/common.h"

namespace halftape::nn {

/// Columns (N, C·kernel, windows) added up to images (N, C, height, width).
class FoldImpl : public Cloneable<FoldImpl> {
 public:
  FoldImpl(ExpandingArray<2> output_size, ExpandingArray<2> kernel_size)
      : FoldImpl(FoldOptions(output_size, kernel_size)) {}
  explicit FoldImpl(const FoldOptions& o) : options(o) {}
  Tensor forward(const Tensor& x) const { return functional::fold(x, options); }
  void pretty_print(std::ostream& out) const override;
  FoldOptions options;
};
HALFTAPE_MODULE(Fold);

/// The windows of images (N, C, height, width) as columns (N, C·kernel, windows).
class UnfoldImpl : public Cloneable<UnfoldImpl> {
 public:
  UnfoldImpl(ExpandingArray<2> kernel_size) : UnfoldImpl(UnfoldOptions(kernel_size)) {}  // NOLINT
  explicit UnfoldImpl(const UnfoldOptions& o) : options(o) {}
  Tensor forward(const Tensor& x) const { return functional::unfold(x, options); }
  void pretty_print(std::ostream& out) const override;
  UnfoldOptions options;
};
HALFTAPE_MODULE(Unfold);

}  // namespace halftape::nn
