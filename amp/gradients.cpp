#include "halftape/amp/gradients.h"

#include <atomic>
#include <sstream>

namespace halftape::amp {
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
  HALFTAPE_CHECK(allow_fp16 || grad.dtype() != kFloat16, call, ": the gradient of parameter ",
                 parameter, ", ", grad.sizes(),
                 ", is float16, which loses what scaling saved when it is divided back; keep "
                 "parameters in float32 and let autocast make the halves, or set "
                 "allow_fp16_grads");
  if (has_mark(grad, scaled)) return;
  const GradMark mark = mark_of(grad);
  if (!mark.known) return;
  if (mark.tag) {
    std::ostringstream place;
    place << call << ": the gradient of parameter " << parameter << ", " << grad.sizes();
    const std::string mixed = mark.tag->objection(place.str(), GradTag::Use::AsTheyAre);
    HALFTAPE_CHECK(mixed.empty(), mixed);
  }
  HALFTAPE_CHECK(mark.tag, call, ": the gradient of parameter ", parameter, ", ", grad.sizes(),
                 ", is of a loss that was not scaled; call scaler.scale(loss).backward()");
  ::halftape::detail::fail(call, ": the gradient of parameter ", parameter, ", ", grad.sizes(),
                           ", is not of a loss that was scaled since the last update(): it was "
                           "unscaled already, or scaled earlier; call optimizer.zero_grad(), then "
                           "scaler.scale(loss).backward()");
}
}  // namespace

void check_divisible(const Gradients& gradients, const char* call, const Ref<GradTag>& scaled,
                     bool allow_fp16) {
  for (size_t i = 0; i < gradients.parameters.size(); ++i)
    if (const Tensor& g = gradients.parameters[i].grad(); g.defined())
      check_divisible(g, i, call, scaled, allow_fp16);
}

}  // namespace halftape::amp
