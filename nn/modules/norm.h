// Normalisation as modules. Computed by autograd/ops/reduction/norm.h.
#pragma once
#include "halftape/nn/modules/common.h"
#include "halftape/nn/options/norm.h"

namespace halftape::nn {

/// Over the last dimensions, whose sizes are normalized_shape. weight starts as 1, bias as 0.
class LayerNormImpl : public Cloneable<LayerNormImpl> {
 public:
  LayerNormImpl(const Shape& normalized_shape)  // NOLINT: as LibTorch
      : LayerNormImpl(LayerNormOptions(normalized_shape)) {}
  explicit LayerNormImpl(const LayerNormOptions& options);
  void reset() override;
  void reset_parameters();
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;

  LayerNormOptions options;
  Tensor weight, bias;  // undefined without elementwise_affine
};
HALFTAPE_MODULE(LayerNorm);

/// By the root of the mean square over the last dimensions. weight starts as 1.
class RMSNormImpl : public Cloneable<RMSNormImpl> {
 public:
  RMSNormImpl(const Shape& normalized_shape)  // NOLINT: as LayerNorm
      : RMSNormImpl(RMSNormOptions(normalized_shape)) {}
  explicit RMSNormImpl(const RMSNormOptions& options);
  void reset() override;
  void reset_parameters();
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;

  RMSNormOptions options;
  Tensor weight;  // undefined without elementwise_affine
};
HALFTAPE_MODULE(RMSNorm);

namespace detail {
/// The base of the layers with weights and running statistics for each channel.
template <class Options>
class ChannelNorm : public CloneableModule {
 public:
  void reset() override;
  /// running_mean ← 0, running_var ← 1, num_batches_tracked ← 0.
  void reset_running_stats();
  /// The same, and weight ← 1, bias ← 0.
  void reset_parameters();
  void pretty_print(std::ostream& out) const override;

  Options options;
  Tensor weight, bias;                                    // undefined without affine
  Tensor running_mean, running_var, num_batches_tracked;  // without track_running_stats

 protected:
  ChannelNorm(Ranked name, const Options& options);
  Ranked name_;  // rank: how many dimensions follow the channels
};

class BatchNorm : public ChannelNorm<BatchNormOptions> {
 public:
  using ChannelNorm::ChannelNorm;
  Tensor forward(const Tensor& x) const;
};
class InstanceNorm : public ChannelNorm<InstanceNormOptions> {
 public:
  using ChannelNorm::ChannelNorm;
  Tensor forward(const Tensor& x) const;
};
}  // namespace detail

/// Each channel over the batch: (N, C) or (N, C, L), (N, C, H, W), (N, C, D, H, W). Training
/// uses the statistics of the batch and moves the running ones towards them; evaluation uses the
/// running ones. A batch whose statistics are not finite, as after an overflow in half, changes
/// neither the running statistics nor num_batches_tracked unless skip_nonfinite is off, so that a
/// step which a GradScaler skips leaves no trace.
template <size_t D>
class BatchNormImpl : public detail::BatchNorm {
 public:
  explicit BatchNormImpl(const BatchNormOptions& o) : BatchNorm({"BatchNorm", D}, o) {}
};
HALFTAPE_RANKED_MODULE(BatchNorm);

/// Each channel of each sample by itself: (N, C, L), (N, C, H, W), (N, C, D, H, W), or without N.
/// num_batches_tracked stays 0, as in LibTorch.
template <size_t D>
class InstanceNormImpl : public detail::InstanceNorm {
 public:
  explicit InstanceNormImpl(const InstanceNormOptions& o) : InstanceNorm({"InstanceNorm", D}, o) {}
};
HALFTAPE_RANKED_MODULE(InstanceNorm);

/// Groups of channels of (N, C, …), each sample by itself, with a weight and a bias for each
/// channel.
class GroupNormImpl : public Cloneable<GroupNormImpl> {
 public:
  GroupNormImpl(int64_t num_groups, int64_t num_channels)
      : GroupNormImpl(GroupNormOptions(num_groups, num_channels)) {}
  explicit GroupNormImpl(const GroupNormOptions& options);
  void reset() override;
  void reset_parameters();
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;

  GroupNormOptions options;
  Tensor weight, bias;  // undefined without affine
};
HALFTAPE_MODULE(GroupNorm);

/// Each channel of (N, C, …) by its neighbours.
HALFTAPE_UNARY_MODULE(LocalResponseNorm, detail::WithOptions<LocalResponseNormOptions>);

/// Each channel of (N, C, H, W) by its neighbours, ⌊(size − 1)/2⌋ before and behind, and by the
/// first channel, which PyTorch's running sum never drops; trained weights depend on it. Computed
/// in float32.
HALFTAPE_UNARY_MODULE(CrossMapLRN2d, detail::WithOptions<CrossMapLRN2dOptions>);

}  // namespace halftape::nn
