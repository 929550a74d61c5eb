#include "halftape/amp/scale_tag.h"

namespace halftape::amp {

std::string ScaleTag::objection(const char* call) const {
  if (is_ == Is::Unscaled) return {};
  return std::string(call) +
         ": the gradients are still multiplied by the loss scale; call "
         "scaler.unscale_(optimizer) before clipping, and scaler.step(optimizer) to step";
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

}  // namespace halftape::amp
