#include "halftape/amp/scale_tag.h"

#include <sstream>

#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/layout/view.h"
#include "halftape/autograd/tape/engine.h"
#include "halftape/autograd/tape/policy.h"
#include "halftape/autograd/tape/record.h"

namespace halftape::amp {

std::string ScaleTag::objection(std::string_view call, Use use) const {
  if (is_ == Is::Mixed) return std::string(call) + ": " + why_;
  if (is_ == Is::Unscaled || use == Use::AsTheyAre) return {};
  return std::string(call) +
         ": the gradients are still multiplied by the loss scale; call "
         "scaler.unscale_(optimizer) before clipping, and scaler.step(optimizer) to step (an "
         "AsyncGradScaler's step clips: give it max_norm)";
}

Ref<GradTag> ScaleTag::plus(const Ref<GradTag>& other) {
  const auto* theirs = dynamic_cast<ScaleTag*>(other.get());
  if (is_ == Is::Mixed) return Ref<GradTag>(this);
  if (theirs && theirs->is_ == Is::Mixed) return other;
  const bool unscaled = is_ == Is::Unscaled, joins_unscaled = theirs && theirs->is_ == Is::Unscaled;
  if (unscaled && (!other || joins_unscaled)) return Ref<GradTag>(this);  // both are true
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

Tensor scaled_loss(const Tensor& loss, LossScaling how, const Ref<GradTag>& tag) {
  const PolicyScope plain(nullptr);
  const Tensor factor(how.factor.defined() ? how.factor : how.scale);
  how.loss = loss.array();
  how.scaled = Array(loss.sizes(), result_type(loss, factor), loss.device());
  backend(loss.device()).scale_loss(how);
  return record(
      "scale", how.scaled, {&loss},
      [factor = Saved::if_wanted(records({&loss}), factor), tag](Node& self,
                                                                 const Tensor& g) -> Grads {
        GradTag::mark_pass(tag);
        const Tensor by = factor.tensor(self);
        return {autograd::is_implicit_one(g) ? reshape(by, g.sizes()).to(g.dtype()) : mul(g, by)};
      });
}

void DivisibleBy::check(const Tensor& grad, size_t parameter) const {
  HALFTAPE_CHECK(allow_fp16 || grad.dtype() != kFloat16, call, ": the gradient of parameter ",
                 parameter, ", ", grad.sizes(),
                 ", is float16, which loses what scaling saved when it is divided back; keep "
                 "parameters in float32 and let autocast make the halves, or set "
                 "allow_fp16_grads");
  if (has_mark(grad, now)) return;
  const GradMark mark = mark_of(grad);
  if (mark.tag && mark.tag != now) {
    std::ostringstream place;
    place << call << ": the gradient of parameter " << parameter << ", " << grad.sizes();
    const std::string mixed = mark.tag->objection(place.str(), GradTag::Use::AsTheyAre);
    HALFTAPE_CHECK(mixed.empty(), mixed);
  }
  HALFTAPE_CHECK(!mark.known || mark.tag, call, ": the gradient of parameter ", parameter, ", ",
                 grad.sizes(),
                 ", is of a loss that was not scaled; call scaler.scale(loss).backward()");
  HALFTAPE_CHECK(!mark.known, call, ": the gradient of parameter ", parameter, ", ", grad.sizes(),
                 ", is not of a loss that was scaled since the last update(): it was unscaled "
                 "already, or scaled earlier; call optimizer.zero_grad(), then "
                 "scaler.scale(loss).backward()");
}

}  // namespace halftape::amp
