// Convolutions as modules.
#pragma once
#include "halftape/nn/any_module.h"
#include "halftape/nn/cloneable.h"
#include "halftape/nn/functional/conv.h"

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

class Conv1dImpl : public Cloneable<Conv1dImpl, ConvImpl<1>> {
 public:
  using Cloneable::Cloneable;
};
class Conv2dImpl : public Cloneable<Conv2dImpl, ConvImpl<2>> {
 public:
  using Cloneable::Cloneable;
};
class Conv3dImpl : public Cloneable<Conv3dImpl, ConvImpl<3>> {
 public:
  using Cloneable::Cloneable;
};
HALFTAPE_MODULE(Conv1d);
HALFTAPE_MODULE(Conv2d);
HALFTAPE_MODULE(Conv3d);

/// What a convolution does to gradients. weight (in, out/groups, kernel…) and bias (out) start in
/// U(−b, b) with b = 1/√(out/groups · elements of the kernel). `output_size`, lengths or all sizes,
/// chooses between those that a convolution would map to x's, in the place of output_padding.
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

class ConvTranspose1dImpl : public Cloneable<ConvTranspose1dImpl, ConvTransposeImpl<1>> {
 public:
  using Cloneable::Cloneable;
};
class ConvTranspose2dImpl : public Cloneable<ConvTranspose2dImpl, ConvTransposeImpl<2>> {
 public:
  using Cloneable::Cloneable;
};
class ConvTranspose3dImpl : public Cloneable<ConvTranspose3dImpl, ConvTransposeImpl<3>> {
 public:
  using Cloneable::Cloneable;
};
HALFTAPE_MODULE(ConvTranspose1d);
HALFTAPE_MODULE(ConvTranspose2d);
HALFTAPE_MODULE(ConvTranspose3d);

}  // namespace halftape::nn
