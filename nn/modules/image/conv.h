// Convolutions, and windows of images as columns and back: options, functions and modules.
// Conv2dOptions(1, 8, 3).stride(2).padding({1, 2}).
#pragma once
#include <variant>

#include "halftape/autograd/ops/image/conv.h"
#include "halftape/autograd/ops/layout/shape.h"
#include "halftape/autograd/tape/error_scope.h"
#include "halftape/core/expanding_array.h"
#include "halftape/core/options.h"
#include "halftape/nn/modules/common.h"

namespace halftape {
inline constexpr PadMode kZeros = PadMode::Constant;
}  // namespace halftape

namespace halftape::nn {

namespace detail {
/// Numbers, kValid or kSame.
template <size_t D>
using conv_padding_t = std::variant<ExpandingArray<D>, PaddingRule>;
/// kZeros, kReflect, kReplicate or kCircular: how the padding is filled.
using conv_padding_mode_t = PadMode;
}  // namespace detail

template <size_t D>
struct ConvOptions {
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
struct ConvTransposeOptions {
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

template <size_t D>
struct ConvFuncOptions {
  using padding_t = nn::detail::conv_padding_t<D>;
  HALFTAPE_ARG(Tensor, bias) = {};
  HALFTAPE_ARG(ExpandingArray<D>, stride) = 1;
  HALFTAPE_ARG(padding_t, padding) = ExpandingArray<D>(0);

 public:
  auto& padding(std::initializer_list<int64_t> numbers) { return padding(padding_t(numbers)); }
  HALFTAPE_ARG(ExpandingArray<D>, dilation) = 1;
  HALFTAPE_ARG(int64_t, groups) = 1;
};

template <size_t D>
struct ConvTransposeFuncOptions {
  HALFTAPE_ARG(Tensor, bias) = {};
  HALFTAPE_ARG(ExpandingArray<D>, stride) = 1;
  HALFTAPE_ARG(ExpandingArray<D>, padding) = 0;
  HALFTAPE_ARG(ExpandingArray<D>, output_padding) = 0;
  HALFTAPE_ARG(int64_t, groups) = 1;
  HALFTAPE_ARG(ExpandingArray<D>, dilation) = 1;
};

namespace detail {
template <size_t D>
ConvPadding padding_of(const nn::detail::conv_padding_t<D>& padding) {
  return std::visit([](const auto& p) { return ConvPadding(p); }, padding);
}
}  // namespace detail

// conv: x (N, in, lengths…) or without N, weight (out, in/groups, kernel…), bias (out). Throws
// unless the channels fit and groups divide them. conv_transpose is its gradient to x: weight (in,
// out/groups, kernel…); output_padding lengthens the result at its end.
#define HALFTAPE_CONV_FUNCTIONS(D)                                                             \
  using Conv##D##dFuncOptions = ConvFuncOptions<D>;                                            \
  using ConvTranspose##D##dFuncOptions = ConvTransposeFuncOptions<D>;                          \
  inline Tensor conv##D##d(const Tensor& x, const Tensor& weight,                              \
                           const Conv##D##dFuncOptions& o = {}) {                              \
    return halftape::conv##D##d(x, weight, o.bias(), o.stride(),                               \
                                detail::padding_of<D>(o.padding()), o.dilation(), o.groups()); \
  }                                                                                            \
  inline Tensor conv_transpose##D##d(const Tensor& x, const Tensor& weight,                    \
                                     const ConvTranspose##D##dFuncOptions& o = {}) {           \
    return halftape::conv_transpose##D##d(x, weight, o.bias(), o.stride(), o.padding(),        \
                                          o.output_padding(), o.groups(), o.dilation());       \
  }
HALFTAPE_CONV_FUNCTIONS(1)
HALFTAPE_CONV_FUNCTIONS(2)
HALFTAPE_CONV_FUNCTIONS(3)
#undef HALFTAPE_CONV_FUNCTIONS

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

/// x: (N, in_channels, lengths…), or without N. weight (out, in/groups, kernel…) and bias (out)
/// start in U(−b, b) with b = 1/√(in/groups · elements of the kernel). Throws unless groups divide
/// both channels.
template <size_t D>
class ConvImpl : public CloneableModule {
 public:
  ConvImpl(int64_t in_channels, int64_t out_channels, ExpandingArray<D> kernel_size)
      : ConvImpl(ConvOptions<D>(in_channels, out_channels, kernel_size)) {}
  explicit ConvImpl(const ConvOptions<D>& o) : options(o) { ConvImpl::reset(); }
  void reset() override;
  void reset_parameters();
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;

  ConvOptions<D> options;
  Tensor weight;
  Tensor bias;  // undefined without bias
};

HALFTAPE_RANKED_MODULE(Conv);

/// The gradient of a convolution to its input. weight (in, out/groups, kernel…) and bias (out)
/// start in U(−b, b) with b = 1/√(out/groups · elements of the kernel). `output_size` (lengths, or
/// all sizes) replaces output_padding: it chooses among the lengths that a convolution maps to
/// those of x.
template <size_t D>
class ConvTransposeImpl : public CloneableModule {
 public:
  ConvTransposeImpl(int64_t in_channels, int64_t out_channels, ExpandingArray<D> kernel_size)
      : ConvTransposeImpl(ConvTransposeOptions<D>(in_channels, out_channels, kernel_size)) {}
  explicit ConvTransposeImpl(const ConvTransposeOptions<D>& o) : options(o) {
    ConvTransposeImpl::reset();
  }
  void reset() override;
  void reset_parameters();
  Tensor forward(const Tensor& x, const std::optional<Dims>& output_size = {}) const;
  void pretty_print(std::ostream& out) const override;
  FORWARD_HAS_DEFAULT_ARGS({1, AnyValue(std::optional<Dims>())})

  ConvTransposeOptions<D> options;
  Tensor weight;
  Tensor bias;  // undefined without bias
};

HALFTAPE_RANKED_MODULE(ConvTranspose);

/// Columns (N, C·kernel, windows) added up to images (N, C, height, width).
class FoldImpl : public Cloneable<FoldImpl> {
 public:
  FoldImpl(ExpandingArray<2> output_size, ExpandingArray<2> kernel_size)
      : FoldImpl(FoldOptions(output_size, kernel_size)) {}
  explicit FoldImpl(const FoldOptions& o) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  FoldOptions options;
};
HALFTAPE_MODULE(Fold);

/// The windows of images (N, C, height, width) as columns (N, C·kernel, windows).
class UnfoldImpl : public Cloneable<UnfoldImpl> {
 public:
  UnfoldImpl(ExpandingArray<2> kernel_size) : UnfoldImpl(UnfoldOptions(kernel_size)) {}  // NOLINT
  explicit UnfoldImpl(const UnfoldOptions& o) : options(o) {}
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;
  UnfoldOptions options;
};
HALFTAPE_MODULE(Unfold);

}  // namespace halftape::nn
