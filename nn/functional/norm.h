// Normalisation, with options: y has the shape and dtype of x, statistics of halves are float32. A
// weight or bias that is undefined is left out; one of another size than its features throws.
#pragma once
#include "halftape/autograd/ops/reduction/norm.h"
#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/nn/options/norm.h"

namespace halftape::nn::functional {

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

}  // namespace halftape::nn::functional
