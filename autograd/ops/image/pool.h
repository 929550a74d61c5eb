// Pooling: one number for each window over the last one to three dimensions. Inputs are
// (N, C, lengths…), or (C, lengths…) without a batch. One number stands for all dimensions; a
// stride left out is the kernel's size. `ceil_mode`: a last window may reach beyond the end.
#pragma once
#include <tuple>

#include "halftape/autograd/tensor.h"

namespace halftape {

/// The largest element of each window; NaN wins. The gradient goes to the first of equals. Windows
/// cover elements `dilation` apart. Padding, at most half a window, is smaller than every number.
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

/// Each value at its position as max pooling gave it, zeros elsewhere. Of equal positions the last
/// stays. `output_size`: lengths.
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

/// `output_size` means: output i of n covers the elements from ⌊i·length/n⌋ up to, but not
/// including, ⌈(i + 1)·length/n⌉.
Tensor adaptive_avg_pool1d(const Tensor& x, const Dims& output_size);
Tensor adaptive_avg_pool2d(const Tensor& x, const Dims& output_size);
Tensor adaptive_avg_pool3d(const Tensor& x, const Dims& output_size);
/// Values and positions, as max_pool2d_with_indices.
std::tuple<Tensor, Tensor> adaptive_max_pool1d(const Tensor& x, const Dims& output_size);
std::tuple<Tensor, Tensor> adaptive_max_pool2d(const Tensor& x, const Dims& output_size);
std::tuple<Tensor, Tensor> adaptive_max_pool3d(const Tensor& x, const Dims& output_size);

/// The largest element of each of `output_size` windows of kernel_size that begin at random places,
/// and its position. `samples`: (N, C, dimensions) random numbers in [0, 1) in torch's order:
/// width, height; or depth, height, width. Graham 2014, arXiv:1412.6071.
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
