#include "halftape/nn/modules/norm.h"

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/unary.h"
#include "halftape/autograd/ops/layout/shape.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/ops/reduction/norm.h"
#include "halftape/autograd/ops/reduction/reduce.h"
#include "halftape/core/contract/backend.h"
#include "halftape/nn/init.h"

namespace halftape::nn {
namespace {

void check_normalized(const char* name, const Shape& shape) {
  HALFTAPE_CHECK(!shape.empty(), name, ": normalized_shape is empty; it names at least one size");
}

void start(const Tensor& weight, const Tensor& bias) {
  if (weight.defined()) init::ones_(weight);
  if (bias.defined()) init::zeros_(bias);
}

}  // namespace

void LayerNormImpl::reset() {
  const Shape& shape = options.normalized_shape();
  check_normalized("LayerNorm", shape);
  if (options.elementwise_affine()) {
    weight = register_parameter("weight", empty(shape));
    if (options.bias()) bias = register_parameter("bias", empty(shape));
  }
  reset_parameters();
}
void LayerNormImpl::reset_parameters() { start(weight, bias); }
HALFTAPE_UNARY_FORWARD(LayerNorm,
                       layer_norm(x, options.normalized_shape(), weight, bias, options.eps()), "",
                       options.normalized_shape(), "eps", options.eps(), "elementwise_affine",
                       options.elementwise_affine(), "bias", detail::unless(true, options.bias()))

void RMSNormImpl::reset() {
  const Shape& shape = options.normalized_shape();
  check_normalized("RMSNorm", shape);
  if (options.elementwise_affine()) weight = register_parameter("weight", empty(shape));
  reset_parameters();
}
void RMSNormImpl::reset_parameters() { start(weight, {}); }
HALFTAPE_UNARY_FORWARD(RMSNorm, rms_norm(x, options.normalized_shape(), weight, options.eps()), "",
                       options.normalized_shape(), "eps", options.eps(), "elementwise_affine",
                       options.elementwise_affine())

namespace detail {

template <class Options>
ChannelNorm<Options>::ChannelNorm(Ranked name, const Options& o) : options(o), name_(name) {
  ChannelNorm::reset();
}

template <class Options>
void ChannelNorm<Options>::reset() {
  const int64_t channels = options.num_features();
  check_positive(name_, "num_features", channels);
  check_fraction(name_, "momentum", std::optional<double>(options.momentum()).value_or(0));
  if (options.affine()) {
    weight = register_parameter("weight", empty({channels}));
    bias = register_parameter("bias", empty({channels}));
  }
  if (options.track_running_stats()) {
    running_mean = register_buffer("running_mean", empty({channels}));
    running_var = register_buffer("running_var", empty({channels}));
    num_batches_tracked = register_buffer("num_batches_tracked", zeros({}, kInt64));
  }
  reset_parameters();
}

template <class Options>
void ChannelNorm<Options>::reset_running_stats() {
  if (!running_mean.defined()) return;
  running_mean.zero_();
  running_var.fill_(1);
  num_batches_tracked.zero_();
}

template <class Options>
void ChannelNorm<Options>::reset_parameters() {
  reset_running_stats();
  start(weight, bias);
}

template <class Options>
void ChannelNorm<Options>::pretty_print(std::ostream& out) const {
  print(out, name_, "", options.num_features(), "eps", options.eps(), "momentum",
        options.momentum(), "affine", options.affine(), "track_running_stats",
        options.track_running_stats());
}

template class ChannelNorm<BatchNormOptions>;
template class ChannelNorm<InstanceNormOptions>;

Tensor BatchNorm::forward(const Tensor& x) const {
  const PlaceScope scope(*this);
  const int spatial = static_cast<int>(name_.rank);
  // One dimension after the channels may be missing, where there is only one.
  HALFTAPE_CHECK(x.dim() == spatial + 2 || (spatial == 1 && x.dim() == 2), name_, ": expected ",
                 spatial == 1 ? "2 or 3" : std::to_string(spatial + 2),
                 " dimensions, (N, C, …), got ", x.sizes());
  HALFTAPE_CHECK(
      x.size(1) == options.num_features() || !(weight.defined() || running_mean.defined()), name_,
      ": input ", x.sizes(), " has ", x.size(1), " channels, num_features is ",
      options.num_features());
  const bool tracks = options.track_running_stats();
  if (!is_training() && tracks && running_mean.defined())
    return scope.result(
        halftape::batch_norm(x, running_mean, running_var, weight, bias, false, 0, options.eps()));
  const auto bytes = [](const Tensor& t) { return t.defined() ? t.array() : Array(); };
  // Turned off, as in LibTorch: batches are neither counted nor averaged.
  const Tensor batches = tracks && is_training() ? num_batches_tracked : Tensor();
  const double momentum = options.momentum().value_or(tracks ? -1 : 0);
  return scope.result(halftape::detail::batch_norm(x,
                                                   {.mean = bytes(running_mean),
                                                    .var = bytes(running_var),
                                                    .batches = bytes(batches),
                                                    .momentum = momentum,
                                                    .skip_nonfinite = options.skip_nonfinite()},
                                                   weight, bias, options.eps()));
}

Tensor InstanceNorm::forward(const Tensor& x) const {
  const PlaceScope scope(*this);
  const int spatial = static_cast<int>(name_.rank);
  HALFTAPE_CHECK(x.dim() == spatial + 2 || x.dim() == spatial + 1, name_, ": expected ",
                 spatial + 1, " or ", spatial + 2, " dimensions, (C, …) or (N, C, …), got ",
                 x.sizes());
  const int64_t channels = x.size(-spatial - 1);
  HALFTAPE_CHECK(
      channels == options.num_features() || !(weight.defined() || running_mean.defined()), name_,
      ": input ", x.sizes(), " has ", channels, " channels, num_features is ",
      options.num_features());
  if (x.dim() == spatial + 1) return scope.result(squeeze(forward(unsqueeze(x, 0)), 0));
  const bool by_batch = is_training() || !options.track_running_stats() || !running_mean.defined();
  return scope.result(instance_norm(x, running_mean, running_var, weight, bias, by_batch,
                                    options.momentum(), options.eps(), options.skip_nonfinite()));
}

}  // namespace detail

void GroupNormImpl::reset() {
  const auto& o = options;
  detail::check_positive("GroupNorm", "num_groups", o.num_groups(), "num_channels",
                         o.num_channels());
  HALFTAPE_CHECK(o.num_channels() % o.num_groups() == 0, "GroupNorm: num_channels ",
                 o.num_channels(), " is not divisible by num_groups ", o.num_groups());
  if (o.affine()) {
    weight = register_parameter("weight", empty({o.num_channels()}));
    bias = register_parameter("bias", empty({o.num_channels()}));
  }
  reset_parameters();
}
void GroupNormImpl::reset_parameters() { start(weight, bias); }
Tensor GroupNormImpl::forward(const Tensor& x) const {
  const PlaceScope scope(*this);
  HALFTAPE_CHECK(!weight.defined() || x.dim() < 2 || x.size(1) == options.num_channels(),
                 "GroupNorm: input ", x.sizes(), " has ", x.size(1), " channels, num_channels is ",
                 options.num_channels());
  return scope.result(group_norm(x, options.num_groups(), weight, bias, options.eps()));
}
HALFTAPE_MODULE_TEXT(GroupNorm, "", options.num_groups(), "", options.num_channels(), "eps",
                     options.eps(), "affine", options.affine())

HALFTAPE_UNARY_FORWARD(LocalResponseNorm, functional::local_response_norm(x, options), "",
                       options.size(), "alpha", options.alpha(), "beta", options.beta(), "k",
                       options.k())

Tensor CrossMapLRN2dImpl::forward(const Tensor& x) const {
  const PlaceScope scope(*this);
  const int64_t size = options.size(), reach = (size - 1) / 2;
  HALFTAPE_CHECK(x.dim() == 4, "CrossMapLRN2d: input ", x.sizes(), "; expected (N, C, H, W)");
  HALFTAPE_CHECK(size > 0, "CrossMapLRN2d: size ", size, " must be positive");
  const Tensor from = x.to(promote(x.dtype(), kFloat32)), squares = from.square();
  Tensor sums = pad(squares, {0, 0, 0, 0, reach, reach}).unfold(1, 2 * reach + 1, 1).sum({-1});
  const Tensor beyond = arange(x.size(1), TensorOptions(kInt64).device(x.device())) > reach;
  sums = sums + squares.slice(1, 0, 1) * beyond.reshape({1, x.size(1), 1, 1}).to(from.dtype());
  const double each = options.alpha() / static_cast<double>(size);
  return scope.result((from * pow(sums * each + options.k(), -options.beta())).to(x.dtype()));
}
HALFTAPE_MODULE_TEXT(CrossMapLRN2d, "", options.size(), "alpha", options.alpha(), "beta",
                     options.beta(), "k", options.k())

}  // namespace halftape::nn
