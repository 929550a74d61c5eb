// Normalisation: options, functions and modules. y has the shape and dtype of x, statistics of
// halves are float32. A weight or bias that is undefined is left out; one of another size than its
// features throws. Computed by autograd/ops/reduction/norm.h.
#pragma once
#include <optional>
#include <utility>

#include "halftape/autograd/ops/reduction/norm.h"
#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/autograd/tensor.h"
#include "halftape/core/options.h"
#include "halftape/nn/modules/common.h"

namespace halftape::nn {

struct LayerNormOptions {
  LayerNormOptions(Shape normalized_shape)  // NOLINT: as LibTorch
      : normalized_shape_(normalized_shape) {}
  LayerNormOptions(std::initializer_list<int64_t> sizes) : normalized_shape_(sizes) {}  // NOLINT
  HALFTAPE_ARG(Shape, normalized_shape);
  HALFTAPE_ARG(double, eps) = 1e-5;
  HALFTAPE_ARG(bool, elementwise_affine) = true;
  HALFTAPE_ARG(bool, bias) = true;
};

struct RMSNormOptions {
  RMSNormOptions(Shape normalized_shape)  // NOLINT: as LibTorch's LayerNormOptions
      : normalized_shape_(normalized_shape) {}
  RMSNormOptions(std::initializer_list<int64_t> sizes) : normalized_shape_(sizes) {}  // NOLINT
  HALFTAPE_ARG(Shape, normalized_shape);
  HALFTAPE_ARG(std::optional<double>, eps) = std::nullopt;  // epsilon of float32 (float64)
  HALFTAPE_ARG(bool, elementwise_affine) = true;
};

struct BatchNormOptions {
  BatchNormOptions(int64_t num_features) : num_features_(num_features) {}  // NOLINT: as LibTorch
  HALFTAPE_ARG(int64_t, num_features);
  HALFTAPE_ARG(double, eps) = 1e-5;
  /// Weight of the newest batch in the running statistics; none: the average over all batches.
  HALFTAPE_ARG(std::optional<double>, momentum) = 0.1;
  HALFTAPE_ARG(bool, affine) = true;
  /// Turned off later, as in LibTorch, the layer takes the batch's statistics in evaluation, too.
  HALFTAPE_ARG(bool, track_running_stats) = true;
  /// A batch with a non-finite value neither changes the running statistics nor counts.
  HALFTAPE_ARG(bool, skip_nonfinite) = true;
};
using BatchNorm1dOptions = BatchNormOptions;
using BatchNorm2dOptions = BatchNormOptions;
using BatchNorm3dOptions = BatchNormOptions;

struct InstanceNormOptions {
  InstanceNormOptions(int64_t num_features)  // NOLINT: as LibTorch
      : num_features_(num_features) {}
  HALFTAPE_ARG(int64_t, num_features);
  HALFTAPE_ARG(double, eps) = 1e-5;
  HALFTAPE_ARG(double, momentum) = 0.1;
  HALFTAPE_ARG(bool, affine) = false;
  HALFTAPE_ARG(bool, track_running_stats) = false;
  HALFTAPE_ARG(bool, skip_nonfinite) = true;
};
using InstanceNorm1dOptions = InstanceNormOptions;
using InstanceNorm2dOptions = InstanceNormOptions;
using InstanceNorm3dOptions = InstanceNormOptions;

struct GroupNormOptions {
  GroupNormOptions(int64_t num_groups, int64_t num_channels)
      : num_groups_(num_groups), num_channels_(num_channels) {}
  HALFTAPE_ARG(int64_t, num_groups);
  HALFTAPE_ARG(int64_t, num_channels);
  HALFTAPE_ARG(double, eps) = 1e-5;
  HALFTAPE_ARG(bool, affine) = true;
};

struct LocalResponseNormOptions {
  LocalResponseNormOptions(int64_t size) : size_(size) {}  // NOLINT: as LibTorch
  HALFTAPE_ARG(int64_t, size);
  HALFTAPE_ARG(double, alpha) = 1e-4;
  HALFTAPE_ARG(double, beta) = 0.75;
  HALFTAPE_ARG(double, k) = 1;
};

using CrossMapLRN2dOptions = LocalResponseNormOptions;

namespace functional {

struct LayerNormFuncOptions {
  LayerNormFuncOptions(Shape normalized_shape)  // NOLINT: as LibTorch
      : normalized_shape_(normalized_shape) {}
  LayerNormFuncOptions(std::initializer_list<int64_t> sizes)  // NOLINT: as the other
      : normalized_shape_(sizes) {}
  HALFTAPE_ARG(Shape, normalized_shape);
  HALFTAPE_ARG(Tensor, weight) = {};
  HALFTAPE_ARG(Tensor, bias) = {};
  HALFTAPE_ARG(double, eps) = 1e-5;
};

struct RMSNormFuncOptions {
  RMSNormFuncOptions(Shape normalized_shape)  // NOLINT: as the others
      : normalized_shape_(normalized_shape) {}
  RMSNormFuncOptions(std::initializer_list<int64_t> sizes)  // NOLINT: as the others
      : normalized_shape_(sizes) {}
  HALFTAPE_ARG(Shape, normalized_shape);
  HALFTAPE_ARG(Tensor, weight) = {};
  HALFTAPE_ARG(std::optional<double>, eps) = std::nullopt;
};

struct BatchNormFuncOptions {
  HALFTAPE_ARG(Tensor, weight) = {};
  HALFTAPE_ARG(Tensor, bias) = {};
  HALFTAPE_ARG(bool, training) = false;
  HALFTAPE_ARG(double, momentum) = 0.1;
  HALFTAPE_ARG(double, eps) = 1e-5;
  HALFTAPE_ARG(bool, skip_nonfinite) = true;
};

struct InstanceNormFuncOptions {
  HALFTAPE_ARG(Tensor, running_mean) = {};
  HALFTAPE_ARG(Tensor, running_var) = {};
  HALFTAPE_ARG(Tensor, weight) = {};
  HALFTAPE_ARG(Tensor, bias) = {};
  HALFTAPE_ARG(bool, use_input_stats) = true;
  HALFTAPE_ARG(double, momentum) = 0.1;
  HALFTAPE_ARG(double, eps) = 1e-5;
  HALFTAPE_ARG(bool, skip_nonfinite) = true;
};

struct GroupNormFuncOptions {
  GroupNormFuncOptions(int64_t num_groups) : num_groups_(num_groups) {}  // NOLINT: as LibTorch
  HALFTAPE_ARG(int64_t, num_groups);
  HALFTAPE_ARG(Tensor, weight) = {};
  HALFTAPE_ARG(Tensor, bias) = {};
  HALFTAPE_ARG(double, eps) = 1e-5;
};

struct NormalizeFuncOptions {
  HALFTAPE_ARG(double, p) = 2;
  HALFTAPE_ARG(int64_t, dim) = 1;
  HALFTAPE_ARG(double, eps) = 1e-12;
  /// Receives the result and is returned: same shape, no history.
  HALFTAPE_ARG(std::optional<Tensor>, out) = {};
};

using LocalResponseNormFuncOptions = LocalResponseNormOptions;

/// Over the last dimensions, whose sizes normalized_shape gives.
inline Tensor layer_norm(const Tensor& x, const LayerNormFuncOptions& o) {
  return halftape::layer_norm(x, o.normalized_shape(), o.weight(), o.bias(), o.eps());
}
/// x divided by the root of its mean square over the last dimensions, normalized_shape.
inline Tensor rms_norm(const Tensor& x, const RMSNormFuncOptions& o) {
  return halftape::rms_norm(x, o.normalized_shape(), o.weight(), o.eps());
}
/// Each channel of (N, C, …) over the batch; in training the running statistics follow.
inline Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                         const BatchNormFuncOptions& o = {}) {
  return halftape::batch_norm(x, running_mean, running_var, o.weight(), o.bias(), o.training(),
                              o.momentum(), o.eps(), o.skip_nonfinite());
}
/// Each channel of each sample of (N, C, …) by itself.
inline Tensor instance_norm(const Tensor& x, const InstanceNormFuncOptions& o = {}) {
  return halftape::instance_norm(x, o.running_mean(), o.running_var(), o.weight(), o.bias(),
                                 o.use_input_stats(), o.momentum(), o.eps(), o.skip_nonfinite());
}
/// num_groups groups of channels of (N, C, …); throws unless they divide C.
inline Tensor group_norm(const Tensor& x, const GroupNormFuncOptions& o) {
  return halftape::group_norm(x, o.num_groups(), o.weight(), o.bias(), o.eps());
}
/// Each channel of (N, C, …) by `size` neighbours.
inline Tensor local_response_norm(const Tensor& x, const LocalResponseNormFuncOptions& o) {
  return halftape::local_response_norm(x, o.size(), o.alpha(), o.beta(), o.k());
}
/// x divided by max(‖x‖ₚ, eps) along `dim`, written into `out` if given, which throws while a
/// gradient is recorded.
inline Tensor normalize(const Tensor& x, const NormalizeFuncOptions& o = {}) {
  if (!o.out()) return halftape::normalize(x, o.p(), o.dim(), o.eps());
  HALFTAPE_CHECK(o.out()->sizes() == x.sizes(), "normalize: out is ", o.out()->sizes(),
                 ", the result ", x.sizes());
  HALFTAPE_CHECK(!GradMode::is_enabled() || !(x.requires_grad() || o.out()->requires_grad()),
                 "normalize: out takes a result without history; leave it out, or use NoGradGuard");
  const NoGradGuard no_grad;
  return o.out()->copy_(halftape::normalize(x, o.p(), o.dim(), o.eps()));
}

}  // namespace functional

/// Normalises over the last dimensions, whose sizes are normalized_shape. weight starts as 1, bias
/// as 0.
class LayerNormImpl : public Cloneable<LayerNormImpl> {
 public:
  LayerNormImpl(const Shape& normalized_shape)  // NOLINT: as LibTorch
      : LayerNormImpl(LayerNormOptions(normalized_shape)) {}
  explicit LayerNormImpl(const LayerNormOptions& o) : options(o) { LayerNormImpl::reset(); }
  void reset() override;
  void reset_parameters();
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;

  LayerNormOptions options;
  Tensor weight, bias;  // undefined without elementwise_affine
};
HALFTAPE_MODULE(LayerNorm);

/// Divides by the root of the mean square over the last dimensions. weight starts as 1.
class RMSNormImpl : public Cloneable<RMSNormImpl> {
 public:
  RMSNormImpl(const Shape& normalized_shape)  // NOLINT: as LayerNorm
      : RMSNormImpl(RMSNormOptions(normalized_shape)) {}
  explicit RMSNormImpl(const RMSNormOptions& o) : options(o) { RMSNormImpl::reset(); }
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

/// Normalises each channel over the batch: (N, C) or (N, C, L), (N, C, H, W), (N, C, D, H, W).
/// Training uses the statistics of the batch and moves the running ones towards them; evaluation
/// uses the running ones. A batch whose statistics are not finite, as after an overflow in half,
/// changes neither the running statistics nor num_batches_tracked unless skip_nonfinite is off, so
/// that a step which a GradScaler skips leaves no trace.
template <size_t D>
class BatchNormImpl : public detail::BatchNorm {
 public:
  explicit BatchNormImpl(const BatchNormOptions& o) : BatchNorm({"BatchNorm", D}, o) {}
};
HALFTAPE_RANKED_MODULE(BatchNorm);

/// Normalises each channel of each sample by itself: (N, C, L), (N, C, H, W), (N, C, D, H, W), or
/// without N. num_batches_tracked stays 0, as in LibTorch.
template <size_t D>
class InstanceNormImpl : public detail::InstanceNorm {
 public:
  explicit InstanceNormImpl(const InstanceNormOptions& o) : InstanceNorm({"InstanceNorm", D}, o) {}
};
HALFTAPE_RANKED_MODULE(InstanceNorm);

/// Normalises groups of channels of (N, C, …), each sample by itself, with a weight and a bias for
/// each channel.
class GroupNormImpl : public Cloneable<GroupNormImpl> {
 public:
  GroupNormImpl(int64_t num_groups, int64_t num_channels)
      : GroupNormImpl(GroupNormOptions(num_groups, num_channels)) {}
  explicit GroupNormImpl(const GroupNormOptions& o) : options(o) { GroupNormImpl::reset(); }
  void reset() override;
  void reset_parameters();
  Tensor forward(const Tensor& x) const;
  void pretty_print(std::ostream& out) const override;

  GroupNormOptions options;
  Tensor weight, bias;  // undefined without affine
};
HALFTAPE_MODULE(GroupNorm);

/// Divides each channel of (N, C, …) by a norm of its neighbours.
HALFTAPE_UNARY_MODULE(LocalResponseNorm, detail::WithOptions<LocalResponseNormOptions>);

/// Divides each channel of (N, C, H, W) by a norm of ⌊(size − 1)/2⌋ neighbours on each side and of
/// the first channel, which PyTorch's running sum never drops; trained weights depend on it.
/// Computed in float32.
HALFTAPE_UNARY_MODULE(CrossMapLRN2d, detail::WithOptions<CrossMapLRN2dOptions>);

}  // namespace halftape::nn
