// Windows of images as columns and back: options, functions and modules.
#pragma once
#include "halftape/autograd/ops/image/conv.h"
#include "halftape/autograd/tape/error_scope.h"
#include "halftape/core/expanding_array.h"
#include "halftape/core/options.h"
#include "halftape/nn/modules/common.h"

namespace halftape::nn {

struct FoldOptions {
  FoldOptions(ExpandingArray<2> output_size, ExpandingArray<2> kernel_size)
      : output_size_(output_size), kernel_size_(kernel_size) {}
  HALFTAPE_ARG(ExpandingArray<2>, output_size);
  HALFTAPE_ARG(ExpandingArray<2>, kernel_size);
  HALFTAPE_ARG(ExpandingArray<2>, dilation) = 1;
  HALFTAPE_ARG(ExpandingArray<2>, padding) = 0;
  HALFTAPE_ARG(ExpandingArray<2>, stride) = 1;
};
struct UnfoldOptions {
  UnfoldOptions(ExpandingArray<2> kernel_size)
      : kernel_size_(kernel_size) {}  // NOLINT: as LibTorch
  HALFTAPE_ARG(ExpandingArray<2>, kernel_size);
  HALFTAPE_ARG(ExpandingArray<2>, dilation) = 1;
  HALFTAPE_ARG(ExpandingArray<2>, padding) = 0;
  HALFTAPE_ARG(ExpandingArray<2>, stride) = 1;
};

namespace functional {

using FoldFuncOptions = FoldOptions;
using UnfoldFuncOptions = UnfoldOptions;

/// Columns (N, C·kernel, windows) added up to images (N, C, *output_size); both also without N.
inline Tensor fold(const Tensor& x, const FoldFuncOptions& o) {
  const ErrorScope scope("fold", x);
  return col2im(x, o.output_size(), o.kernel_size(), o.dilation(), o.padding(), o.stride());
}
/// The windows of images (N, C, H, W) as columns (N, C·kernel, windows); both also without N.
inline Tensor unfold(const Tensor& x, const UnfoldFuncOptions& o) {
  const ErrorScope scope("unfold", x);
  return im2col(x, o.kernel_size(), o.dilation(), o.padding(), o.stride());
}

}  // namespace functional

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
