#include "halftape/optim/clip_grad.h"

#include <cmath>

#include "halftape/autograd/grad_mode.h"
#include "halftape/autograd/grad_tag.h"
#include "halftape/autograd/ops/binary.h"
#include "halftape/autograd/ops/create.h"
#include "halftape/autograd/ops/reduce.h"
#include "halftape/autograd/ops/unary.h"
#include "halftape/autograd/policy.h"

namespace halftape::nn::utils {
namespace {

std::vector<Tensor> gradients(const std::vector<Tensor>& parameters, const char* call,
                              ScaledGrads scaled) {
  std::vector<Tensor> grads;
  for (const Tensor& p : parameters)
    if (p.grad().defined()) grads.push_back(p.grad());
  const auto use = scaled == ScaledGrads::Allow ? GradTag::Use::AsTheyAre : GradTag::Use::AsTrue;
  for (const Tensor& g : grads) check_mark(g, call, use);
  return grads;
}

/// Changes a gradient in place and leaves its mark: a clipped gradient is as scaled as before.
template <class Change>
void keep_mark(const Tensor& grad, const Change& change) {
  const GradMark mark = mark_of(grad);
  change(grad);
  if (mark.known) set_mark(grad, mark.tag);
}

}  // namespace

TotalNorm clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type,
                          bool error_if_nonfinite, ScaledGrads scaled) {
  HALFTAPE_CHECK(max_norm > 0, "clip_grad_norm_: max_norm ", max_norm, " must be positive");
  HALFTAPE_CHECK(norm_type > 0, "clip_grad_norm_: norm_type ", norm_type, " must be positive");
  const NoGradGuard no_grad;
  const PolicyScope plain(nullptr);
  const std::vector<Tensor> grads = gradients(parameters, "clip_grad_norm_", scaled);
  if (grads.empty()) return TotalNorm(zeros({}));
  Dtype wide = kFloat32;
  for (const Tensor& g : grads) wide = promote(wide, g.dtype());

  // Squares of numbers beyond 1e19 leave float32: take the largest element out first, if it is a
  // number to divide by.
  Tensor largest = zeros({}, TensorOptions(wide).device(grads[0].device()));
  for (const Tensor& g : grads)
    if (g.numel() > 0) largest = maximum(largest, abs(g).amax().to(wide));
  Tensor norm = largest;
  if (!std::isinf(norm_type)) {
    const Tensor unit = where(largest - largest == 0, where(largest > 0, largest, 1), 1);
    Tensor total = zeros_like(largest);
    for (const Tensor& g : grads)
      total = total + sum(pow(abs(g.to(wide)) / unit, norm_type), {}, false, wide);
    norm = unit * pow(total, 1 / norm_type);
  }
  const Tensor finite = norm - norm == 0;
  HALFTAPE_CHECK(!error_if_nonfinite || finite.item<int>() != 0,
                 "clip_grad_norm_: the total norm of order ", norm_type, " is not finite (",
                 norm.item(), "); find its cause, or pass error_if_nonfinite=false");
  const Tensor factor = where(finite, clamp(max_norm / (norm + 1e-6), {}, 1.0), 1);
  for (const Tensor& grad : grads) keep_mark(grad, [&](const Tensor& g) { g.mul_(factor); });
  return TotalNorm(norm);
}

void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value,
                      ScaledGrads scaled) {
  HALFTAPE_CHECK(clip_value >= 0, "clip_grad_value_: clip_value ", clip_value,
                 " must not be negative");
  const NoGradGuard no_grad;
  const PolicyScope plain(nullptr);
  for (const Tensor& grad : gradients(parameters, "clip_grad_value_", scaled))
    keep_mark(grad, [&](const Tensor& g) { g.copy_(clamp(g, -clip_value, clip_value)); });
}

}  // namespace halftape::nn::utils
