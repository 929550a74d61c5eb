#include "halftape/autograd/ops/reduction/norm.h"

#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/pointwise.h"
#include "halftape/autograd/ops/elementwise/unary.h"
#include "halftape/autograd/ops/layout/dims.h"
#include "halftape/autograd/ops/layout/shape.h"
#include "halftape/autograd/ops/reduction/reduce.h"
#include "halftape/autograd/ops/reduction/statistics.h"
#include "halftape/autograd/tape/error_scope.h"
#include "halftape/autograd/tape/record.h"
#include "halftape/core/contract/backend.h"

namespace halftape {
namespace {

Array bytes(const Tensor& t) { return t.defined() ? t.array() : Array(); }

/// The elements over which statistics are taken.
enum class Over : uint8_t {
  Rows,      // of the last dimension
  Squares,   // of the last dimension, without a mean
  Channels,  // of x (N, C, S)
  Given,     // the same, by statistics that were there before
};

bool of_channels(Over over) { return over == Over::Channels || over == Over::Given; }

/// The gradients in Tensor ops, for those who differentiate them.
Grads formula(const Node& self, Over over, const Tensor& g_in, const Tensor& x_in, const Tensor& w,
              const Norm& kept, Dtype bias) {
  const bool channels = of_channels(over);
  const Tensor g = widened(g_in), x = widened(x_in);
  const Dims all = channels ? Dims{0, 2} : Dims{-1};
  const Shape one = channels ? Shape{x.size(1), 1} : Shape{x.size(-1)};  // a weight beside x
  Tensor from = x, rstd;
  if (over == Over::Given) {
    from = x - detail::reshaped(Tensor(kept.mean), one);
    rstd = detail::reshaped(Tensor(kept.rstd), one);
  } else {
    if (over != Over::Squares) from = x - mean(x, all, true);
    rstd = rsqrt(mean(square(from), all, true) + kept.eps);
  }
  const Tensor unit = from * rstd;
  Grads d(3);
  if (self.wants(0)) {
    const Tensor gw = w.defined() ? g * detail::reshaped(w, one) : g;
    Tensor dx = gw;
    if (over != Over::Given) dx = dx - unit * mean(gw * unit, all, true);
    if (over == Over::Rows || over == Over::Channels) dx = dx - mean(gw, all, true);
    d[0] = (rstd * dx).to(x_in.dtype());
  }
  if (self.wants(1)) d[1] = detail::reshaped(sum_to(g * unit, one), w.sizes()).to(w.dtype());
  if (self.wants(2)) d[2] = detail::reshaped(sum_to(g, one), {one[0]}).to(bias);
  return d;
}

/// The same by the device's kernels.
Grads by_kernels(const Node& self, Over over, const Array& g, const Norm& from, Dtype bias) {
  const Array& x = from.x;
  const Shape each{x.size(of_channels(over) ? 1 : x.dim() - 1)};
  NormGrads d;
  if (self.wants(0)) d.dx = Array(x.shape(), x.dtype(), x.device());
  if (self.wants(1)) d.dweight = Array(each, from.weight.dtype(), x.device());
  if (self.wants(2)) d.dbias = Array(each, bias, x.device());
  if (of_channels(over))
    backend(x.device()).batch_norm_grad(d, g, from, over == Over::Channels);
  else
    backend(x.device()).row_norm_grad(d, g, from);
  const auto grad = [](const Array& a) { return a.defined() ? Tensor(a) : Tensor(); };
  return {grad(d.dx), grad(d.dweight), grad(d.dbias)};
}

/// y in dtype `out`. `statistics`: mean and rstd of Given, else undefined.
Tensor fused(const char* name, Over over, const Tensor& x, const Tensor& w, const Tensor& b,
             double eps, Dtype out, Norm statistics = {}, const RunningStats& running = {}) {
  const bool channels = of_channels(over);
  Norm norm{.x = x.array(),
            .weight = bytes(w),
            .bias = bytes(b),
            .mean = std::move(statistics.mean),
            .rstd = std::move(statistics.rstd),
            .eps = eps};
  if (over != Over::Given) {
    const Shape each = channels ? Shape{x.size(1)} : reduced_shape(x.sizes(), {x.dim() - 1}, false);
    if (over != Over::Squares) norm.mean = Array(each, compute_dtype(x.dtype()), x.device());
    norm.rstd = Array(each, compute_dtype(x.dtype()), x.device());
  }
  const Array y(x.sizes(), out, x.device());
  Backend& device = backend(x.device());
  if (channels)
    device.batch_norm(y, norm, over == Over::Channels, running);
  else
    device.row_norm(y, norm);
  if (!records({&x, &w, &b})) return Tensor(y);
  norm.x = norm.weight = norm.bias = Array();  // Saved has them
  return record(name, y, {&x, &w, &b},
                [over, kept = std::move(norm), x = Saved(x), w = Saved::if_wanted(w.defined(), w),
                 bias = b.defined() ? b.dtype() : kFloat32](Node& self, const Tensor& g) -> Grads {
                  if (GradMode::is_enabled())
                    return formula(self, over, g, x.tensor(self),
                                   w.defined() ? w.tensor(self) : Tensor(), kept, bias);
                  Norm from = kept;
                  from.x = x.array(self);
                  if (w.defined()) from.weight = w.array(self);
                  return by_kernels(self, over, g.array(), from, bias);
                });
}

/// Of what stands beside x and may be undefined.
void check_beside(const char* op, const char* what, const Array& a, const Tensor& x,
                  const Shape& shape) {
  if (!a.defined()) return;
  HALFTAPE_CHECK(a.shape() == shape && is_floating_point(a.dtype()), op, ": ", what, " is ",
                 a.dtype(), ' ', a.shape(), ", expected a floating-point ", shape);
  HALFTAPE_CHECK(a.device() == x.device(), op, ": ", what, " on ", a.device(), ", the input on ",
                 x.device(), "; move one with .to(device)");
}

void check_weights(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias,
                   const Shape& shape) {
  check_beside(op, "weight", bytes(weight), x, shape);
  check_beside(op, "bias", bytes(bias), x, shape);
}

Tensor over_last(const CastOp& op, Over over, const Tensor& x_in, const Shape& shape,
                 const Tensor& w_in, const Tensor& b_in, std::optional<double> eps) {
  const auto [x, w, b] = cast_inputs<1>(op, x_in, w_in, b_in);
  check_floating(op.name, x);
  const int64_t lead = x.dim() - shape.size();
  bool ends = !shape.empty() && lead >= 0;
  for (int d = 0; ends && d < shape.size(); ++d) ends = x.size(lead + d) == shape[d];
  HALFTAPE_CHECK(ends, op.name, ": input ", x.sizes(), " does not end in normalized_shape ", shape);
  check_weights(op.name, x, w, b, shape);
  const double e = eps.value_or(epsilon(compute_dtype(x.dtype())));
  if (shape.size() == 1) return fused(op.name, over, x, w, b, e, x.dtype());
  const int64_t length = numel(shape);
  const Shape rows = detail::joined(detail::leading_dims(x.sizes(), shape.size()), length);
  const auto flat = [&](const Tensor& t) {
    return t.defined() ? detail::reshaped(t, {length}) : t;
  };
  return detail::reshaped(
      fused(op.name, over, detail::reshaped(x, rows), flat(w), flat(b), e, x.dtype()), x.sizes());
}

/// x (N, C, …) as (N, C, S).
Tensor channels_of(const char* op, const Tensor& x) {
  check_floating(op, x);
  HALFTAPE_CHECK(x.dim() >= 2, op, ": input ", x.sizes(), " has no channels; expected (N, C, …)");
  if (x.dim() == 3) return x;
  return detail::reshaped(x, {x.size(0), x.size(1), numel(x.sizes().slice(2))});
}

void check_running(const char* op, const Tensor& x, const Array& mean, const Array& var) {
  HALFTAPE_CHECK(mean.defined() == var.defined(), op,
                 ": one of running_mean and running_var is undefined; give both or none");
  check_beside(op, "running_mean", mean, x, {x.size(1)});
  check_beside(op, "running_var", var, x, {x.size(1)});
}

/// By the statistics of the batch, on x (N, C, S).
Tensor by_batch(const char* op, const Tensor& x, RunningStats running, const Tensor& w,
                const Tensor& b, double eps) {
  check_weights(op, x, w, b, {x.size(1)});
  check_running(op, x, running.mean, running.var);
  for (const Array* a : {&running.mean, &running.var})
    HALFTAPE_CHECK(!a->defined() || !overlaps_itself(a->shape(), a->strides()), op,
                   ": of the running statistics several elements are one number in memory; "
                   "give it a clone()");
  if (const Array& n = running.batches; n.defined())
    HALFTAPE_CHECK(n.dtype() == kInt64 && n.numel() == 1 && n.device() == x.device(), op,
                   ": num_batches_tracked is ", n.dtype(), ' ', n.shape(), " on ", n.device(),
                   ", expected one int64 on ", x.device());
  if (x.numel() == 0) running = {};  // nothing to learn from
  for (const Array* a : {&running.mean, &running.var, &running.batches})
    if (a->defined()) a->bump_version();
  return fused(op, Over::Channels, x, w, b, eps, x.dtype(), {}, running);
}

Tensor by_given(const char* op, const Tensor& x, const Tensor& mean, const Tensor& var,
                const Tensor& w, const Tensor& b, double eps) {
  HALFTAPE_CHECK(mean.defined() && var.defined(), op,
                 ": running_mean and running_var must be defined outside training");
  check_weights(op, x, w, b, {x.size(1)});
  check_running(op, x, mean.array(), var.array());
  const Dtype dtype = compute_dtype(x.dtype());
  Norm given;
  {
    const NoGradGuard constants;
    const PolicyScope plain(nullptr);
    // A copy where it is kept: training may change the statistics before backward() reads them.
    const bool kept = x.requires_grad() || w.requires_grad() || b.requires_grad();
    given.mean = contiguous(mean.to(dtype, false, kept)).array();
    given.rstd = contiguous(rsqrt(var.to(dtype) + eps)).array();
  }
  return fused(op, Over::Given, x, w, b, eps, x.dtype(), given);
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight,
                  const Tensor& bias, double eps) {
  return over_last(cast_list::layer_norm, Over::Rows, x, normalized_shape, weight, bias, eps);
}

Tensor rms_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight,
                std::optional<double> eps) {
  return over_last(cast_list::rms_norm, Over::Squares, x, normalized_shape, weight, {}, eps);
}

namespace detail {
Tensor batch_norm(const Tensor& x_in, const RunningStats& running, const Tensor& w_in,
                  const Tensor& b_in, double eps) {
  const auto [given, w, b] = cast_inputs<1>(cast_list::batch_norm, x_in, w_in, b_in);
  const Tensor x = channels_of("batch_norm", given);
  HALFTAPE_CHECK(x.size(0) * x.size(2) != 1, "batch_norm: one value for each channel in ",
                 given.sizes(), " has no variance to train with; use eval() or a larger batch");
  return detail::reshaped(by_batch("batch_norm", x, running, w, b, eps), given.sizes());
}
}  // namespace detail

Tensor batch_norm(const Tensor& x_in, const Tensor& running_mean, const Tensor& running_var,
                  const Tensor& weight, const Tensor& bias, bool training, double momentum,
                  double eps, bool skip_nonfinite) {
  if (training)
    return detail::batch_norm(x_in,
                              {.mean = bytes(running_mean),
                               .var = bytes(running_var),
                               .momentum = momentum,
                               .skip_nonfinite = skip_nonfinite},
                              weight, bias, eps);
  const auto [given, w, b] = cast_inputs<1>(cast_list::batch_norm, x_in, weight, bias);
  const Tensor x = channels_of("batch_norm", given);
  return detail::reshaped(by_given("batch_norm", x, running_mean, running_var, w, b, eps),
                          given.sizes());
}

Tensor group_norm(const Tensor& x_in, int64_t num_groups, const Tensor& weight, const Tensor& bias,
                  double eps) {
  const ErrorScope scope("group_norm", x_in);
  const auto [x, w, b] = cast_inputs<1>(cast_list::group_norm, x_in, weight, bias);
  const Tensor channels = channels_of("group_norm", x);
  const int64_t C = x.size(1);
  HALFTAPE_CHECK(num_groups > 0 && C % num_groups == 0, "group_norm: the ", C, " channels of ",
                 x.sizes(), " are not divisible by num_groups ", num_groups);
  check_weights("group_norm", x, w, b, {C});
  const Tensor rows =
      detail::reshaped(channels, {x.size(0), num_groups, C / num_groups * channels.size(2)});
  const bool affine = w.defined() || b.defined();
  const Tensor y = detail::reshaped(fused("group_norm", Over::Rows, rows, {}, {}, eps,
                                          affine ? compute_dtype(x.dtype()) : x.dtype()),
                                    channels.sizes());
  const auto beside = [&](const Tensor& t) { return detail::reshaped(t, {C, 1}); };
  const Tensor z = w.defined() && b.defined() ? addcmul(beside(b), y, beside(w))
                   : w.defined()              ? y * beside(w)
                   : b.defined()              ? y + beside(b)
                                              : y;
  return detail::reshaped(z.to(x.dtype()), x.sizes());
}

Tensor instance_norm(const Tensor& x_in, const Tensor& running_mean, const Tensor& running_var,
                     const Tensor& weight, const Tensor& bias, bool use_input_stats,
                     double momentum, double eps, bool skip_nonfinite) {
  const ErrorScope scope("instance_norm", x_in);
  const auto [given, w, b] = cast_inputs<1>(cast_list::instance_norm, x_in, weight, bias);
  const Tensor x = channels_of("instance_norm", given);
  const int64_t N = x.size(0), C = x.size(1), S = x.size(2);
  if (!use_input_stats)
    return detail::reshaped(by_given("instance_norm", x, running_mean, running_var, w, b, eps),
                            given.sizes());
  HALFTAPE_CHECK(S != 1, "instance_norm: one value for each channel of a sample in ", given.sizes(),
                 " has no variance");
  check_weights("instance_norm", x, w, b, {C});
  check_running("instance_norm", x, bytes(running_mean), bytes(running_var));
  // The channels of all samples are channels of one.
  const PolicyScope plain(nullptr);
  const auto each = [N](const Tensor& t) { return t.defined() ? repeat(t, {N}) : t; };
  Tensor mean, var;
  {
    const NoGradGuard statistics;
    mean = each(running_mean), var = each(running_var);
  }
  const Tensor y = by_batch("instance_norm", detail::reshaped(x, {1, N * C, S}),
                            {.mean = bytes(mean),
                             .var = bytes(var),
                             .momentum = momentum,
                             .skip_nonfinite = skip_nonfinite},
                            each(w), each(b), eps);
  if (mean.defined() && x.numel() > 0) {
    const NoGradGuard statistics;
    for (const auto& [to, from] : {std::pair{running_mean, mean}, {running_var, var}}) {
      const Tensor change = halftape::mean(detail::reshaped(from, {N, C}) - to, {0});
      to.copy_(halftape::where(change == 0, to, to + change));  // no change, not even −0 + 0
    }
  }
  return detail::reshaped(y, given.sizes());
}

Tensor local_response_norm(const Tensor& x_in, int64_t size, double alpha, double beta, double k) {
  const ErrorScope scope("local_response_norm", x_in);
  const auto [x] = cast_inputs(cast_list::local_response_norm, x_in);
  check_floating("local_response_norm", x);
  HALFTAPE_CHECK(x.dim() >= 3, "local_response_norm: input ", x.sizes(),
                 "; expected (N, C, …) with three dimensions at least");
  HALFTAPE_CHECK(size > 0, "local_response_norm: size ", size, " must be positive");
  if (x.numel() == 0) return clone(x);
  std::vector<int64_t> frame(static_cast<size_t>(2 * (x.dim() - 1)), 0);
  frame[frame.size() - 2] = size / 2;
  frame[frame.size() - 1] = (size - 1) / 2;
  const Tensor from = widened(x);
  const Tensor m = mean(unfold(pad(square(from), frame), 1, size, 1), {-1});
  return (from / pow(m * alpha + k, beta)).to(x.dtype());
}

Tensor normalize(const Tensor& x_in, double p, int64_t dim, double eps) {
  const ErrorScope scope("normalize", x_in);
  const auto [x] = cast_inputs(cast_list::normalize, x_in);
  check_floating("normalize", x);
  const Tensor from = widened(x);
  return (from / clamp_min(norm(from, p, {dim}, true), eps)).to(x.dtype());
}

}  // namespace halftape
