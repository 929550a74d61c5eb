#include "halftape/amp/scale_tag.h"

#include "halftape/autograd/ops/binary.h"
#include "halftape/autograd/policy.h"
#include "halftape/autograd/record.h"

namespace halftape::amp {

std::string ScaleTag::objection(const char* call) const {
  if (is_ == Is::Unscaled) return {};
  return std::string(call) +
         ": the gradients are still multiplied by the loss scale; call "
         "scaler.unscale_(optimizer) before clipping, and scaler.step(optimizer) to step (an "
         "AsyncGradScaler's step clips: give it max_norm)";
}

std::string ScaleTag::conflict(const GradTag* other) const {
  if (!other && is_ == Is::Unscaled) return {};
  if (!other)
    return "a gradient of a scaled loss meets one of a loss that was not scaled; call "
           "scaler.scale(loss).backward() for every loss";
  if (is_ == Is::Unscaled)
    return "a gradient arrives at one that was already unscaled by unscale_() or step(); call "
           "optimizer.zero_grad() before the next backward(), or unscale_() after the last one";
  return "gradients of two different loss scales meet: update(), or another scaler, came between; "
         "call optimizer.zero_grad() after a step, and update() after the last backward()";
}

Tensor scaled_loss(const Tensor& loss, const Tensor& factor, const Ref<GradTag>& tag) {
  const PolicyScope plain(nullptr);
  return record("scale", mul(loss.detach(), factor).array(), {&loss},
                [factor, tag](Node&, const Tensor& g) -> Grads {
                  GradTag::mark_pass(tag);
                  return {mul(g, factor)};
                });
}

void DivisibleBy::check(const Tensor& grad, size_t parameter) const {
  HALFTAPE_CHECK(allow_fp16 || grad.dtype() != kFloat16, call, ": the gradient of parameter ",
                 parameter, ", ", grad.sizes(),
                 ", is float16, which loses what scaling saved when it is divided back; keep "
                 "parameters in float32 and let autocast make the halves, or set "
                 "allow_fp16_grads");
  const GradMark mark = mark_of(grad);
  HALFTAPE_CHECK(!mark.known || mark.tag, call, ": the gradient of parameter ", parameter, ", ",
                 grad.sizes(),
                 ", is of a loss that was not scaled; call scaler.scale(loss).backward()");
  HALFTAPE_CHECK(!mark.known || mark.tag == now, call, ": the gradient of parameter ", parameter,
                 ", ", grad.sizes(),
                 ", is not of a loss that was scaled since the last update(): it was unscaled "
                 "already, or scaled earlier; call optimizer.zero_grad(), then "
                 "scaler.scale(loss).backward()");
}

}  // namespace halftape::amp
