// Normalisation, with options.
#pragma once
#include "halftape/autograd/ops/reduction/norm.h"
#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/nn/options/norm.h"

namespace halftape::nn::functional {

inline Tensor layer_norm(const Tensor& x, const LayerNormFuncOptions& o) {
  return halftape::layer_norm(x, o.normalized_shape(), o.weight(), o.bias(), o.eps());
}
inline Tensor rms_norm(const Tensor& x, const RMSNormFuncOptions& o) {
  return halftape::rms_norm(x, o.normalized_shape(), o.weight(), o.eps());
}
inline Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                         const BatchNormFuncOptions& o = {}) {
  return halftape::batch_norm(x, running_mean, running_var, o.weight(), o.bias(), o.training(),
                              o.momentum(), o.eps(), o.skip_nonfinite());
}
inline Tensor instance_norm(const Tensor& x, const InstanceNormFuncOptions& o = {}) {
  return halftape::instance_norm(x, o.running_mean(), o.running_var(), o.weight(), o.bias(),
                                 o.use_input_stats(), o.momentum(), o.eps(), o.skip_nonfinite());
}
inline Tensor group_norm(const Tensor& x, const GroupNormFuncOptions& o) {
  return halftape::group_norm(x, o.num_groups(), o.weight(), o.bias(), o.eps());
}
inline Tensor local_response_norm(const Tensor& x, const LocalResponseNormFuncOptions& o) {
  return halftape::local_response_norm(x, o.size(), o.alpha(), o.beta(), o.k());
}
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
