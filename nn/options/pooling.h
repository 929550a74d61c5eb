// Options of pooling, for functions (nn/functional/pooling.h) and modules
// (nn/modules/image/pooling.h). The stride is the kernel's size unless given.
#pragma once
#include <optional>
#include <vector>

#include "halftape/autograd/tensor.h"
#include "halftape/core/expanding_array.h"
#include "halftape/core/options.h"
#include "halftape/nn/options/ranked.h"

namespace halftape::nn {

template <size_t D>
class AvgPoolOptions {
 public:
  AvgPoolOptions(ExpandingArray<D> kernel_size)  // NOLINT: as LibTorch, here and below
      : kernel_size_(kernel_size), stride_(kernel_size) {}
  HALFTAPE_ARG(ExpandingArray<D>, kernel_size);
  HALFTAPE_ARG(ExpandingArray<D>, stride);
  HALFTAPE_ARG(ExpandingArray<D>, padding) = 0;
  HALFTAPE_ARG(bool, ceil_mode) = false;
  HALFTAPE_ARG(bool, count_include_pad) = true;
  HALFTAPE_ARG(std::optional<int64_t>, divisor_override) = {};  // of two and three dimensions
};
HALFTAPE_RANKED_OPTIONS(AvgPool, AvgPoolOptions);

template <size_t D>
class MaxPoolOptions {
 public:
  MaxPoolOptions(ExpandingArray<D> kernel_size)  // NOLINT
      : kernel_size_(kernel_size), stride_(kernel_size) {}
  HALFTAPE_ARG(ExpandingArray<D>, kernel_size);
  HALFTAPE_ARG(ExpandingArray<D>, stride);
  HALFTAPE_ARG(ExpandingArray<D>, padding) = 0;
  HALFTAPE_ARG(ExpandingArray<D>, dilation) = 1;
  HALFTAPE_ARG(bool, ceil_mode) = false;
};
HALFTAPE_RANKED_OPTIONS(MaxPool, MaxPoolOptions);

template <size_t D>
class MaxUnpoolOptions {
 public:
  MaxUnpoolOptions(ExpandingArray<D> kernel_size)  // NOLINT
      : kernel_size_(kernel_size), stride_(kernel_size) {}
  HALFTAPE_ARG(ExpandingArray<D>, kernel_size);
  HALFTAPE_ARG(ExpandingArray<D>, stride);
  HALFTAPE_ARG(ExpandingArray<D>, padding) = 0;
};
HALFTAPE_RANKED_OPTIONS(MaxUnpool, MaxUnpoolOptions);

/// Lengths of the output; std::nullopt, where there are several: as the input's.
template <class output_size_t>
class AdaptivePoolOptions {
 public:
  AdaptivePoolOptions(output_size_t output_size) : output_size_(output_size) {}  // NOLINT
  HALFTAPE_ARG(output_size_t, output_size);
};
using AdaptiveMaxPool1dOptions = AdaptivePoolOptions<ExpandingArray<1>>;
using AdaptiveMaxPool2dOptions = AdaptivePoolOptions<ExpandingArrayWithOptionalElem<2>>;
using AdaptiveMaxPool3dOptions = AdaptivePoolOptions<ExpandingArrayWithOptionalElem<3>>;
using AdaptiveAvgPool1dOptions = AdaptiveMaxPool1dOptions;
using AdaptiveAvgPool2dOptions = AdaptiveMaxPool2dOptions;
using AdaptiveAvgPool3dOptions = AdaptiveMaxPool3dOptions;

/// Either output_size or output_ratio, a part of the input's lengths between 0 and 1.
/// `_random_samples`: where the windows lie, (N, C, D) in [0, 1); drawn unless given.
template <size_t D>
class FractionalMaxPoolOptions {
 public:
  FractionalMaxPoolOptions(ExpandingArray<D> kernel_size) : kernel_size_(kernel_size) {}  // NOLINT
  HALFTAPE_ARG(ExpandingArray<D>, kernel_size);
  HALFTAPE_ARG(std::optional<ExpandingArray<D>>, output_size) = {};
  using ExpandingArrayDouble = ExpandingArray<D, double>;
  HALFTAPE_ARG(std::optional<ExpandingArrayDouble>, output_ratio) = {};
  HALFTAPE_ARG(Tensor, _random_samples) = {};
};
using FractionalMaxPool2dOptions = FractionalMaxPoolOptions<2>;
using FractionalMaxPool3dOptions = FractionalMaxPoolOptions<3>;

template <size_t D>
class LPPoolOptions {
 public:
  LPPoolOptions(double norm_type, ExpandingArray<D> kernel_size)
      : norm_type_(norm_type), kernel_size_(kernel_size), stride_(kernel_size) {}
  HALFTAPE_ARG(double, norm_type);
  HALFTAPE_ARG(ExpandingArray<D>, kernel_size);
  HALFTAPE_ARG(ExpandingArray<D>, stride);
  HALFTAPE_ARG(bool, ceil_mode) = false;
};
HALFTAPE_RANKED_OPTIONS(LPPool, LPPoolOptions);

namespace functional {

/// `output_size`: lengths, or all sizes, where several are possible.
template <size_t D>
class MaxUnpoolFuncOptions {
 public:
  MaxUnpoolFuncOptions(ExpandingArray<D> kernel_size)  // NOLINT
      : kernel_size_(kernel_size), stride_(kernel_size) {}
  HALFTAPE_ARG(ExpandingArray<D>, kernel_size);
  HALFTAPE_ARG(ExpandingArray<D>, stride);
  HALFTAPE_ARG(ExpandingArray<D>, padding) = 0;
  HALFTAPE_ARG(std::optional<std::vector<int64_t>>, output_size) = {};
};

}  // namespace functional
}  // namespace halftape::nn
