#include "halftape/autograd/ops/loss/loss.h"

#include <cmath>
#include <numbers>

#include "halftape/autograd/ops/cast_list.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/unary.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/ops/loss/loss_parts.h"
#include "halftape/autograd/ops/reduction/reduce.h"

namespace halftape {
namespace detail {

Dtype loss_dtype(const char* op, std::initializer_list<const Tensor*> inputs) {
  const Dtype dtype = result_type(inputs);
  HALFTAPE_CHECK(is_floating_point(dtype), op, ": of ", dtype,
                 " tensors; convert them with .to(kFloat32) first");
  return dtype;
}

void same_shape(const char* op, const Tensor& x, const Tensor& y) {
  HALFTAPE_CHECK(x.sizes() == y.sizes(), op, ": input ", x.sizes(), " and target ", y.sizes(),
                 " differ: the target's size must be the same as input size, as they are not ",
                 "broadcast (that hides mistakes)");
}

Tensor reduced(const char* op, const Tensor& losses, Reduction reduction) {
  HALFTAPE_CHECK(reduction != Reduction::BatchMean, op,
                 ": reduction kBatchMean is kl_div's alone; expected kNone, kMean or kSum");
  return reduction == Reduction::None  ? losses
         : reduction == Reduction::Sum ? sum(losses)
                                       : mean(losses);
}

}  // namespace detail

using detail::loss_of;

namespace {

/// d²/2 where |d| < bound, bound·(|d| − bound/2) elsewhere: with c = d clamped to ±bound, c·(d −
/// c/2).
Tensor bounded_square(const Tensor& d, double bound) {
  const Tensor c = clamp(d, -bound, bound);
  return c * (d - 0.5 * c);
}

const Tensor* or_else(const Tensor& x, const Tensor& other) { return &(x.defined() ? x : other); }

/// A weight does not make more losses than there are.
void check_weight(const char* op, const char* what, const Tensor& w, const Tensor& x) {
  HALFTAPE_CHECK(!w.defined() || broadcasts_to(w.sizes(), x.sizes()), op, ": ", what, " ",
                 w.defined() ? w.sizes() : Shape{}, " does not broadcast to the input, ",
                 x.sizes());
}

/// y·ln y, 0 with a derivative of 0 where y is 0.
Tensor entropy(const Tensor& y) { return y * log(where(y == 0, 1, y)); }

}  // namespace

Tensor l1_loss(const Tensor& a, const Tensor& b, Reduction reduction) {
  return loss_of(cast_list::l1_loss, a, b, reduction,
                 [](const Tensor& u, const Tensor& v) { return abs(u - v); });
}

Tensor smooth_l1_loss(const Tensor& a, const Tensor& b, Reduction reduction, double beta) {
  HALFTAPE_CHECK(beta >= 0, "smooth_l1_loss: beta ", beta, " is negative");
  return loss_of(cast_list::smooth_l1_loss, a, b, reduction,
                 [beta](const Tensor& u, const Tensor& v) {
                   return beta == 0 ? abs(u - v) : bounded_square(u - v, beta) / beta;
                 });
}

Tensor huber_loss(const Tensor& a, const Tensor& b, Reduction reduction, double delta) {
  HALFTAPE_CHECK(delta > 0, "huber_loss: delta ", delta, " is not positive");
  return loss_of(cast_list::huber_loss, a, b, reduction, [delta](const Tensor& u, const Tensor& v) {
    return bounded_square(u - v, delta);
  });
}

Tensor kl_div(const Tensor& a, const Tensor& b, Reduction reduction, bool log_target) {
  const bool of_batch = reduction == Reduction::BatchMean;
  return loss_of(cast_list::kl_div, a, b, of_batch ? Reduction::None : reduction,
                 [&](const Tensor& u, const Tensor& v) {
                   const Tensor losses = log_target ? exp(v) * (v - u) : entropy(v) - v * u;
                   return of_batch ? sum(losses) / (u.dim() > 0 ? u.size(0) : 1) : losses;
                 });
}

Tensor poisson_nll_loss(const Tensor& a, const Tensor& b, bool log_input, bool full, double eps,
                        Reduction reduction) {
  return loss_of(
      cast_list::poisson_nll_loss, a, b, reduction, [&](const Tensor& u, const Tensor& v) {
        Tensor losses = log_input ? exp(u) - v * u : u - v * log(u + eps);
        if (!full) return losses;
        const Tensor many = where(v > 1, v, 1);
        const Tensor stirling = many * log(many) - many + 0.5 * log(2 * std::numbers::pi * many);
        return losses + where(v > 1, stirling, 0);
      });
}

Tensor gaussian_nll_loss(const Tensor& a, const Tensor& b, const Tensor& c, bool full, double eps,
                         Reduction reduction) {
  const ErrorScope scope("gaussian_nll_loss", a, b, c);
  const auto [x, y, var] = cast_inputs(cast_list::gaussian_nll_loss, a, b, c);
  HALFTAPE_CHECK(eps > 0, "gaussian_nll_loss: eps ", eps, " is not positive");
  Shape one = x.sizes();
  if (!one.empty()) one[one.size() - 1] = 1;
  const bool short_of_last = var.dim() + 1 == x.dim();
  const Tensor v = short_of_last ? unsqueeze(var, -1) : var;
  HALFTAPE_CHECK(v.sizes() == x.sizes() || v.sizes() == one, "gaussian_nll_loss: var ", var.sizes(),
                 " for input ", x.sizes(), "; expected ", x.sizes(), ", ", one,
                 " or one without the last dimension");
  detail::same_shape("gaussian_nll_loss", x, y);
  const Dtype dtype = detail::loss_dtype("gaussian_nll_loss", {&x, &y}),
              wide = compute_dtype(dtype);
  const Tensor given = v.to(wide);
  const Tensor s = where(given < eps, eps + (given - given.detach()), given);
  Tensor losses = 0.5 * (log(s) + square(x.to(wide) - y.to(wide)) / s);
  if (full) losses = losses + 0.5 * std::log(2 * std::numbers::pi);
  return detail::reduced("gaussian_nll_loss", losses, reduction).to(dtype);
}

Tensor mse_loss(const Tensor& a, const Tensor& b, Reduction reduction) {
  const ErrorScope scope("mse_loss", a, b);
  // A cast to float32 is left to the difference, which is float32 if one of the two is.
  constexpr auto float32 = [](Dtype d) { return d == kFloat32; };
  const auto inputs = cast_inputs(cast_list::mse_loss.converting(float32), a, b);
  const auto& [x, y] = inputs;
  detail::same_shape("mse_loss", x, y);
  const Dtype dtype = result_type(x, y);
  const Tensor d = (is_narrow(dtype) ? x.to(kFloat32) : x) - y;
  const Tensor loss = detail::reduced("mse_loss", square(d), reduction);
  return inputs.compute_as() ? loss : loss.to(dtype);
}

Tensor binary_cross_entropy_with_logits(const Tensor& a, const Tensor& b, const Tensor& weight,
                                        const Tensor& pos_weight, Reduction reduction) {
  const ErrorScope scope("binary_cross_entropy_with_logits", a, b);
  const auto [x, y, w, p] =
      cast_inputs<2>(cast_list::binary_cross_entropy_with_logits, a, b, weight, pos_weight);
  detail::same_shape("binary_cross_entropy_with_logits", x, y);
  check_weight("binary_cross_entropy_with_logits", "weight", w, x);
  check_weight("binary_cross_entropy_with_logits", "pos_weight", p, x);
  const Dtype dtype = detail::loss_dtype("binary_cross_entropy_with_logits",
                                         {&x, &y, or_else(w, x), or_else(p, x)});
  // ln(1 − σ(x)) = ln σ(x) − x.
  const Tensor u = widened(x), v = widened(y), left = (1 - v) * u, tail = -log_sigmoid(u);
  Tensor losses = p.defined() ? left + (1 + (widened(p) - 1) * v) * tail : left + tail;
  if (w.defined()) losses = losses * widened(w);
  return detail::reduced("binary_cross_entropy_with_logits", losses, reduction).to(dtype);
}

Tensor binary_cross_entropy(const Tensor& a, const Tensor& b, const Tensor& weight,
                            Reduction reduction) {
  const ErrorScope scope("binary_cross_entropy", a, b);
  const auto [p, y, w] = cast_inputs<2>(cast_list::binary_cross_entropy, a, b, weight);
  detail::same_shape("binary_cross_entropy", p, y);
  check_weight("binary_cross_entropy", "weight", w, p);
  const Dtype dtype = detail::loss_dtype("binary_cross_entropy", {&p, &y, or_else(w, p)});
  for (const auto& [what, t] : {std::pair("input", p), std::pair("target", y)})
    HALFTAPE_CHECK(
        !t.device().is_cpu() || !logical_or(t.detach() < 0, t.detach() > 1).any().item<bool>(),
        "binary_cross_entropy: ", what,
        " has numbers outside of [0, 1]; of what is no "
        "probability take binary_cross_entropy_with_logits");
  Tensor losses = binary<formula::BinaryCrossEntropy>(widened(p), widened(y));
  if (w.defined()) losses = losses * widened(w);
  return detail::reduced("binary_cross_entropy", losses, reduction).to(dtype);
}

}  // namespace halftape
