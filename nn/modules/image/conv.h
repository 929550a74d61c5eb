// Convolutions as modules.
#pragma once
#include "halftape/nn/functional/conv.h"
#include "halftape/nn/modules/common.h"

namespace halftape::nn {

/// x: (N, in_channels, lengths…), or without N. weight (out, in/groups, kernel…) and bias (out)
/// start in U(−b, b) with b = 1/√(in/groups · elements of the kernel). Throws unless groups divide
/// both channels.
template <size_t D>
class ConvImpl : public CloneableModule {
 public:
  ConvImpl(int64_t in_channels, int64_t out_channels, ExpandingArray<D> kernel_size)
      : ConvImpl(ConvOptions<D>(in_channels, out_channels, kernel_size)) {}
  explicit ConvImpl(const ConvOptions<D>& options);
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
  explicit ConvTransposeImpl(const ConvTransposeOptions<D>& options);
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

}  // namespace halftape::nn
