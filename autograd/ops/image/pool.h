// Pooling: one number for each window over the last one to three dimensions. Inputs are
// (N, C, lengths…), or (C, lengths…) for one. A number given for several dimensions is one for all;
// a stride left out is the kernel's size. `ceil_mode`: a last window may reach beyond the end.
#pragma once
#include <tuple>

#include "halftape/autograd/tensor.h"

namespace halftape {

/// The largest element of each window; NaN wins. The gradient goes to the first of equals. Windows
/// cover elements `dilation` apart; what `padding` adds is smaller than every number, and at most
/// half a window.
Tensor max_pool1d(const Tensor& x, const Dims& kernel_size, const Dims& stride = {},
                  const Dims& padding = 0, const Dims& dilation = 1, bool ceil_mode = false);
Tensor max_pool2d(const Tensor& x, const Dims& kernel_size, const Dims& stride = {},
                  const Dims& padding = 0, const Dims& dilation = 1, bool ceil_mode = false);
Tensor max_pool3d(const Tensor& x, const Dims& kernel_size, const Dims& stride = {},
                  const Dims& padding = 0, const Dims& dilation = 1, bool ceil_mode = false);
/// The same, and int64 positions in the pooled dimensions made one.
std::tuple<Tensor, Tensor> max_pool1d_with_indices(const Tensor& x, const Dims& kernel_size,
                                                   const Dims& stride = {}, const Dims& padding = 0,
                                                   const Dims& dilation = 1,
                                                   bool ceil_mode = false);
std::tuple<Tensor, Tensor> max_pool2d_with_indices(const Tensor& x, const Dims& kernel_size,
                                                   const Dims& stride = {}, const Dims& padding = 0,
                                                   const Dims& dilation = 1,
                                                   bool ceil_mode = false);
std::tuple<Tensor, Tensor> max_pool3d_with_indices(const Tensor& x, const Dims& kernel_size,
                                                   const Dims& stride = {}, const Dims& padding = 0,
                                                   const Dims& dilation = 1,
                                                   bool ceil_mode = false);

/// Each value at the position that max pooling gave with it, zeros elsewhere. Of equal positions
/// the last stays. `output_size`: lengths.
Tensor max_unpool1d(const Tensor& x, const Tensor& indices, const Dims& output_size);
Tensor max_unpool2d(const Tensor& x, const Tensor& indices, const Dims& output_size);
Tensor max_unpool3d(const Tensor& x, const Tensor& indices, const Dims& output_size);

/// The mean of each window, padding counted as zeros unless count_include_pad is false; or its sum
/// by `divisor_override`. Added up in float32.
Tensor avg_pool1d(const Tensor& x, const Dims& kernel_size, const Dims& stride = {},
                  const Dims& padding = 0, bool ceil_mode = false, bool count_include_pad = true);
Tensor avg_pool2d(const Tensor& x, const Dims& kernel_size, const Dims& stride = {},
                  const Dims& padding = 0, bool ceil_mode = false, bool count_include_pad = true,
                  std::optional<int64_t> divisor_override = {});
Tensor avg_pool3d(const Tensor& x, const Dims& kernel_size, const Dims& stride = {},
                  const Dims& padding = 0, bool ceil_mode = false, bool count_include_pad = true,
                  std::optional<int64_t> divisor_override = {});

/// As many outputs as `output_size` says: output i of n sees the elements from ⌊i·length/n⌋ to
/// before ⌈(i + 1)·length/n⌉.
Tensor adaptive_avg_pool1d(const Tensor& x, const Dims& output_size);
Tensor adaptive_avg_pool2d(const Tensor& x, const Dims& output_size);
Tensor adaptive_avg_pool3d(const Tensor& x, const Dims& output_size);
/// Values and positions, as max_pool2d_with_indices.
std::tuple<Tensor, Tensor> adaptive_max_pool1d(const Tensor& x, const Dims& output_size);
std::tuple<Tensor, Tensor> adaptive_max_pool2d(const Tensor& x, const Dims& output_size);
std::tuple<Tensor, Tensor> adaptive_max_pool3d(const Tensor& x, const Dims& output_size);

/// The largest element of each of `output_size` windows of one size that begin where random numbers
/// say, and where it was: `samples`, (N, C, dimensions) in [0, 1), one for each channel, in the
/// order of torch: width before height, but depth, height, width. Graham 2014, arXiv:1412.6071.
std::tuple<Tensor, Tensor> fractional_max_pool2d(const Tensor& x, const Dims& kernel_size,
                                                 const Dims& output_size, const Tensor& samples);
std::tuple<Tensor, Tensor> fractional_max_pool3d(const Tensor& x, const Dims& kernel_size,
                                                 const Dims& output_size, const Tensor& samples);

/// (Σ xᵖ)^(1/p) of each window: NaN where the sum is negative, and no gradient where it is 0. Under
/// autocast: float32.
Tensor lp_pool1d(const Tensor& x, double norm_type, const Dims& kernel_size,
                 const Dims& stride = {}, bool ceil_mode = false);
Tensor lp_pool2d(const Tensor& x, double norm_type, const Dims& kernel_size,
                 const Dims& stride = {}, bool ceil_mode = false);
Tensor lp_pool3d(const Tensor& x, double norm_type, const Dims& kernel_size,
                 const Dims& stride = {}, bool ceil_mode = false);

}  // namespace halftape
