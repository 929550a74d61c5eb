#include "halftape/amp/gradients.h"

#include <atomic>

#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/tape/implicit_one.h"
#include "halftape/autograd/tape/policy.h"
#include "halftape/autograd/tape/record.h"

namespace halftape::amp {

std::string ScaleTag::objection(std::string_view call, Use use) const {
  if (is_useless()) return std::string(call) + ": " + why_;
  if (kind_ == Kind::Unscaled || use == Use::Scaled) return {};
  return std::string(call) +
         ": the gradients are still multiplied by the loss scale; call "
         "scaler.unscale_(optimizer) before clipping, and scaler.step(optimizer) to step (an "
         "AsyncGradScaler's step clips: give it max_norm)";
}

Ref<GradTag> ScaleTag::plus(const Ref<GradTag>& other) {
  const auto* theirs = dynamic_cast<ScaleTag*>(other.get());
  if (is_useless()) return Ref<GradTag>(this);
  if (theirs && theirs->is_useless()) return other;
  const bool unscaled = kind_ == Kind::Unscaled,
             joins_unscaled = theirs && theirs->kind_ == Kind::Unscaled;
  if (unscaled && (!other || joins_unscaled)) return Ref<GradTag>(this);  // neither is scaled
  if (!other)
    return make_ref<ScaleTag>(
        "gradients of a scaled loss and of one that was not scaled were added; call "
        "optimizer.zero_grad(), and scaler.scale(loss).backward() for every loss, or for their "
        "sum");
  if (unscaled || joins_unscaled)
    return make_ref<ScaleTag>(
        "a scaled gradient was added to one that unscale_() or step() had unscaled already; call "
        "optimizer.zero_grad() before the first backward() of a step, and unscale_() after the "
        "last one");
  return make_ref<ScaleTag>(
      "gradients of two different loss scales were added: update(), or another scaler, came "
      "between; call optimizer.zero_grad() after a step, and update() after the last backward()");
}

void check_loss(const Tensor& loss, const char* call) {
  HALFTAPE_CHECK(loss.defined(), call, ": the loss is undefined");
  HALFTAPE_CHECK(loss.is_floating_point(), call, ": the loss, ", loss.sizes(), ", is ",
                 loss.dtype(),
                 ", and only floating-point tensors have gradients; make it of float ones, with "
                 ".to(kFloat32) before the first operation that is to be differentiated");
}

namespace {
Ref<GradTag> scaled_twice() {
  return make_ref<ScaleTag>(
      "the loss was scaled twice: scale() was given what scale() had returned, or something made "
      "of it; call optimizer.zero_grad(), and scale() once on the way from a loss to backward()");
}
}  // namespace

Tensor scaled_loss(const Tensor& loss, CheckedScale how, const Ref<GradTag>& tag) {
  const PolicyScope plain(nullptr);
  const Tensor factor(how.factor.defined() ? how.factor : how.scale);
  how.x = loss.array();
  how.y = Array(loss.sizes(), result_type(loss, factor), loss.device());
  backend(loss.device()).run(how);
  return record(
      "scale", how.y, {&loss},
      [factor = Saved::if_wanted(records({&loss}), factor), tag](Node& self,
                                                                 const Tensor& g) -> Grads {
        GradTag::mark(GradTag::current() ? scaled_twice() : tag);
        const Tensor by = factor.tensor(self);
        return {autograd::is_implicit_one(g) ? expand(by, g.sizes()).to(g.dtype()) : mul(g, by)};
      });
}

void make_useless(const Tensor& grad, const Ref<GradTag>& tag) {
  const GradMark mark = mark_of(grad);
  const auto* before = dynamic_cast<const ScaleTag*>(mark.tag.get());
  if (!before || !before->is_useless()) set_mark(grad, tag);
}

namespace {
std::atomic<GradientHook> gradient_hook{nullptr};
}

void set_gradient_hook(GradientHook hook) { gradient_hook = hook; }

void call_gradient_hook(std::span<const Tensor> parameters) {
  if (const GradientHook hook = gradient_hook.load(std::memory_order_relaxed)) hook(parameters);
}

Gradients collect_gradients(std::span<const Tensor> parameters) {
  Gradients all{parameters, {}};
  all.arrays.reserve(parameters.size());
  for (const Tensor& p : parameters) {
    const Tensor& g = p.grad();
    all.arrays.push_back(g.defined() ? g.array() : Array());
    all.any |= g.defined();
    all.any_float16 |= g.defined() && g.dtype() == kFloat16;
  }
  return all;
}

void check_divisible(const Gradients& gradients, const char* call, const Ref<GradTag>& scaled,
                     Device device, bool allow_fp16) {
  for (size_t i = 0; i < gradients.parameters.size(); ++i) {
    const Tensor& g = gradients.parameters[i].grad();
    if (!g.defined()) continue;
    const auto place = [&] {
      return halftape::detail::str(call, ": the gradient of parameter ", i, ", ", g.sizes());
    };
    HALFTAPE_CHECK(g.device() == device, place(), ", is on ", g.device(),
                   ", and the loss that was scaled on ", device,
                   "; move the model and the loss to one device");
    HALFTAPE_CHECK(allow_fp16 || g.dtype() != kFloat16, place(),
                   ", is float16, which loses what scaling saved when it is divided back; keep "
                   "parameters in float32 and let autocast make the halves, or set "
                   "allow_fp16_grads");
    if (has_mark(g, scaled)) continue;
    const GradMark mark = mark_of(g);
    if (!mark.known) continue;
    HALFTAPE_CHECK(mark.tag, place(),
                   ", is of a loss that was not scaled; call scaler.scale(loss).backward()");
    const std::string useless = mark.tag->objection(place(), GradTag::Use::Scaled);
    HALFTAPE_CHECK(useless.empty(), useless);
    halftape::detail::fail(
        place(),
        ", is not of a loss that was scaled since the last update(): it was unscaled already, or "
        "scaled earlier; call optimizer.zero_grad(), then scaler.scale(loss).backward()");
  }
}

}  // namespace halftape::amp
