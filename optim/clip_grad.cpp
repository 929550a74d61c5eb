#include "halftape/optim/clip_grad.h"

#include <cmath>
#include <limits>
#include <set>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/unary.h"
#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/autograd/tape/grad_tag.h"
#include "halftape/autograd/tape/policy.h"
#include "halftape/autograd/tape/separate_gradients.h"
#include "halftape/core/contract/backend.h"

namespace halftape::nn::utils {
namespace {

std::vector<Tensor> gradients(ArrayRef<Tensor> parameters, const char* call, ScaledGrads scaled) {
  separate_gradients(parameters);
  std::vector<Tensor> grads;
  std::set<const void*> met;  // a layer with two names is listed twice
  for (const Tensor& p : parameters)
    if (p.grad().defined() && met.insert(p.impl()).second) grads.push_back(p.grad());
  const auto use = scaled == ScaledGrads::Allow ? GradTag::Use::Scaled : GradTag::Use::Unscaled;
  for (const Tensor& g : grads) check_mark(g, call, use);
  return grads;
}

/// Changes gradients in place and keeps their marks: clipping does not change a gradient's scale.
template <class Change>
void keep_marks(const std::vector<Tensor>& grads, const Change& change) {
  std::vector<GradMark> marks;
  marks.reserve(grads.size());
  for (const Tensor& g : grads) marks.push_back(mark_of(g));
  change();
  for (size_t i = 0; i < grads.size(); ++i)
    if (marks[i].known) set_mark(grads[i], marks[i].tag);
}

}  // namespace

TotalNorm clip_grad_norm_(ArrayRef<Tensor> parameters, double max_norm, double norm_type,
                          bool error_if_nonfinite, ScaledGrads scaled) {
  HALFTAPE_CHECK(max_norm > 0, "clip_grad_norm_: max_norm ", max_norm, " must be positive");
  HALFTAPE_CHECK(norm_type > 0, "clip_grad_norm_: norm_type ", norm_type, " must be positive");
  const NoGradGuard no_grad;
  const PolicyScope plain(nullptr);
  const std::vector<Tensor> grads = gradients(parameters, "clip_grad_norm_", scaled);
  if (grads.empty()) return TotalNorm(zeros({}));
  const Device device = grads[0].device();
  Dtype wide = kFloat32;
  std::vector<Array> arrays;
  for (const Tensor& g : grads) {
    HALFTAPE_CHECK(g.device() == device, "clip_grad_norm_: gradients on ", device, " and on ",
                   g.device(), "; clip those of one device at a time");
    wide = promote(wide, g.dtype());
    arrays.push_back(g.array());
  }
  const auto one = [&](Dtype d) { return Array({}, d, device); };
  ListNorm n{
      .xs = arrays, .p = norm_type, .most = max_norm, .norm = one(wide), .factor = one(wide)};
  // Where powers may leave double's range, divide by the largest element first, if it is finite and
  // positive.
  if (!std::isinf(norm_type) && (wide == kFloat64 || norm_type > 7)) {
    ListNorm of_largest = n;
    of_largest.p = std::numeric_limits<double>::infinity();
    backend(device).list_norm(of_largest);
    const Tensor largest = Tensor(n.norm).to(kFloat64);
    n.unit = where(largest - largest == 0, where(largest > 0, largest, 1), 1).array();
    n.norm = one(wide);
  }
  backend(device).list_norm(n);
  const Tensor norm(n.norm);
  if (error_if_nonfinite)
    HALFTAPE_CHECK(std::isfinite(norm.item<double>()), "clip_grad_norm_: the total norm of order ",
                   norm_type, " is not finite (", norm.item(),
                   "); find its cause, or pass error_if_nonfinite=false");
  keep_marks(grads, [&] {
    if (wide == kFloat64)
      for (const Tensor& g : grads) Tensor(g).mul_(Tensor(n.factor));
    else
      backend(device).unscale(arrays, n.factor);
  });
  return TotalNorm(norm);
}

void clip_grad_value_(ArrayRef<Tensor> parameters, double clip_value, ScaledGrads scaled) {
  HALFTAPE_CHECK(clip_value >= 0, "clip_grad_value_: clip_value ", clip_value,
                 " must not be negative");
  const NoGradGuard no_grad;
  const PolicyScope plain(nullptr);
  const std::vector<Tensor> grads = gradients(parameters, "clip_grad_value_", scaled);
  keep_marks(grads, [&] {
    for (const Tensor& g : grads) Tensor(g).copy_(clamp(g, -clip_value, clip_value));
  });
}

}  // namespace halftape::nn::utils
