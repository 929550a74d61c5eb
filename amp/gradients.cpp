#include "halftape/amp/gradients.h"

#include <atomic>
#include <sstream>

#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/tape/engine.h"
#include "halftape/autograd/tape/policy.h"
#include "halftape/autograd/tape/record.h"

namespace halftape::amp {

std::string ScaleTag::objection(std::string_view call, Use use) const {
  if (kind_ == Kind::Mixed) return std::string(call) + ": " + why_;
  if (kind_ == Kind::Unscaled || use == Use::Scaled) return {};
  return std::string(call) +
         ": the gradients are still multiplied by the loss scale; call "
         "scaler.unscale_(optimizer) before clipping, and scaler.step(optimizer) to step (an "
         "AsyncGradScaler's step clips: give it max_norm)";
}

Ref<GradTag> ScaleTag::plus(const Ref<GradTag>& other) {
  const auto* theirs = dynamic_cast<ScaleTag*>(other.get());
  if (kind_ == Kind::Mixed) return Ref<GradTag>(this);
  if (theirs && theirs->kind_ == Kind::Mixed) return other;
  const bool unscaled = kind_ == Kind::Unscaled,
             joins_unscaled = theirs && theirs->kind_ == Kind::Unscaled;
  if (unscaled && (!other || joins_unscaled)) return Ref<GradTag>(this);  // neither is scaled
  if (!other)
    return make_ref<ScaleTag>(
        "gradients of a scaled loss and of one that was not scaled were added; call "
        "optimizer.zero_grad(), and scaler.scale(loss).backward() for every loss");
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
        GradTag::mark_pass(tag);
        const Tensor by = factor.tensor(self);
        return {autograd::is_implicit_one(g) ? reshape(by, g.sizes()).to(g.dtype()) : mul(g, by)};
      });
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

namespace {
void check_divisible(const Tensor& grad, size_t parameter, const char* call,
                     const Ref<GradTag>& scaled, bool allow_fp16) {
  const auto refuse = [&](const char* why) {
    ::halftape::detail::fail(call, ": the gradient of parameter ", parameter, ", ", grad.sizes(),
                             ", is ", why);
  };
  if (!allow_fp16 && grad.dtype() == kFloat16)
    refuse(
        "float16, which loses what scaling saved when it is divided back; keep parameters in "
        "float32 and let autocast make the halves, or set allow_fp16_grads");
  if (has_mark(grad, scaled)) return;
  const GradMark mark = mark_of(grad);
  if (!mark.known) return;
  if (!mark.tag) refuse("of a loss that was not scaled; call scaler.scale(loss).backward()");
  std::ostringstream place;
  place << call << ": the gradient of parameter " << parameter << ", " << grad.sizes();
  const std::string mixed = mark.tag->objection(place.str(), GradTag::Use::Scaled);
  HALFTAPE_CHECK(mixed.empty(), mixed);
  refuse(
      "not of a loss that was scaled since the last update(): it was unscaled already, or scaled "
      "earlier; call optimizer.zero_grad(), then scaler.scale(loss).backward()");
}
}  // namespace

void check_divisible(const Gradients& gradients, const char* call, const Ref<GradTag>& scaled,
                     bool allow_fp16) {
  for (size_t i = 0; i < gradients.parameters.size(); ++i)
    if (const Tensor& g = gradients.parameters[i].grad(); g.defined())
      check_divisible(g, i, call, scaled, allow_fp16);
}

}  // namespace halftape::amp
