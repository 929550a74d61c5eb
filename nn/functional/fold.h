// Windows of images as columns and back, with options.
#pragma once
#include "halftape/autograd/ops/image/conv.h"
#include "halftape/autograd/tape/error_scope.h"
#include "halftape/nn/options/fold.h"

namespace halftape::nn::functional {

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

}  // namespace halftape::nn::functional
