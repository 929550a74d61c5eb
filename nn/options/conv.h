// Options of convolutions, for functions (nn/functional/conv.h) and modules
// (nn/modules/image/conv.h): Conv2dOptions(1, 8, 3).stride(2).padding({1, 2}).
#pragma once
#include <variant>

#include "halftape/autograd/ops/image/conv.h"
#include "halftape/autograd/ops/layout/shape.h"
#include "halftape/core/expanding_array.h"
#include "halftape/core/options.h"
#include "halftape/nn/options/ranked.h"

namespace halftape {
inline constexpr PadMode kZeros = PadMode::Constant;
}

namespace halftape::nn {

namespace detail {
/// Numbers, kValid or kSame.
template <size_t D>
using conv_padding_t = std::variant<ExpandingArray<D>, PaddingRule>;
/// kZeros, kReflect, kReplicate or kCircular: how the padding is filled.
using conv_padding_mode_t = PadMode;
}  // namespace detail

template <size_t D>
class ConvOptions {
 public:
  using padding_t = detail::conv_padding_t<D>;
  using padding_mode_t = detail::conv_padding_mode_t;
  ConvOptions(int64_t in_channels, int64_t out_channels, ExpandingArray<D> kernel_size)
      : in_channels_(in_channels), out_channels_(out_channels), kernel_size_(kernel_size) {}
  HALFTAPE_ARG(int64_t, in_channels);
  HALFTAPE_ARG(int64_t, out_channels);
  HALFTAPE_ARG(ExpandingArray<D>, kernel_size);
  HALFTAPE_ARG(ExpandingArray<D>, stride) = 1;
  HALFTAPE_ARG(padding_t, padding) = ExpandingArray<D>(0);

 public:
  auto& padding(std::initializer_list<int64_t> numbers) { return padding(padding_t(numbers)); }
  HALFTAPE_ARG(ExpandingArray<D>, dilation) = 1;
  HALFTAPE_ARG(int64_t, groups) = 1;
  HALFTAPE_ARG(bool, bias) = true;
  HALFTAPE_ARG(padding_mode_t, padding_mode) = kZeros;
};
HALFTAPE_RANKED_OPTIONS(Conv, ConvOptions);

template <size_t D>
class ConvTransposeOptions {
 public:
  using padding_mode_t = detail::conv_padding_mode_t;
  ConvTransposeOptions(int64_t in_channels, int64_t out_channels, ExpandingArray<D> kernel_size)
      : in_channels_(in_channels), out_channels_(out_channels), kernel_size_(kernel_size) {}
  HALFTAPE_ARG(int64_t, in_channels);
  HALFTAPE_ARG(int64_t, out_channels);
  HALFTAPE_ARG(ExpandingArray<D>, kernel_size);
  HALFTAPE_ARG(ExpandingArray<D>, stride) = 1;
  HALFTAPE_ARG(ExpandingArray<D>, padding) = 0;
  HALFTAPE_ARG(ExpandingArray<D>, output_padding) = 0;
  HALFTAPE_ARG(int64_t, groups) = 1;
  HALFTAPE_ARG(bool, bias) = true;
  HALFTAPE_ARG(ExpandingArray<D>, dilation) = 1;
  HALFTAPE_ARG(padding_mode_t, padding_mode) = kZeros;  // the only mode allowed
};
HALFTAPE_RANKED_OPTIONS(ConvTranspose, ConvTransposeOptions);

namespace functional {

template <size_t D>
class ConvFuncOptions {
 public:
  using padding_t = nn::detail::conv_padding_t<D>;
  HALFTAPE_ARG(Tensor, bias) = {};
  HALFTAPE_ARG(ExpandingArray<D>, stride) = 1;
  HALFTAPE_ARG(padding_t, padding) = ExpandingArray<D>(0);

 public:
  auto& padding(std::initializer_list<int64_t> numbers) { return padding(padding_t(numbers)); }
  HALFTAPE_ARG(ExpandingArray<D>, dilation) = 1;
  HALFTAPE_ARG(int64_t, groups) = 1;
};
using Conv1dFuncOptions = ConvFuncOptions<1>;
using Conv2dFuncOptions = ConvFuncOptions<2>;
using Conv3dFuncOptions = ConvFuncOptions<3>;

template <size_t D>
class ConvTransposeFuncOptions {
 public:
  HALFTAPE_ARG(Tensor, bias) = {};
  HALFTAPE_ARG(ExpandingArray<D>, stride) = 1;
  HALFTAPE_ARG(ExpandingArray<D>, padding) = 0;
  HALFTAPE_ARG(ExpandingArray<D>, output_padding) = 0;
  HALFTAPE_ARG(int64_t, groups) = 1;
  HALFTAPE_ARG(ExpandingArray<D>, dilation) = 1;
};
using ConvTranspose1dFuncOptions = ConvTransposeFuncOptions<1>;
using ConvTranspose2dFuncOptions = ConvTransposeFuncOptions<2>;
using ConvTranspose3dFuncOptions = ConvTransposeFuncOptions<3>;

}  // namespace functional
}  // namespace halftape::nn
