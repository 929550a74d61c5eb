// The marks of the gradients of a scaled loss; and the gradients of an optimizer, collected, and
// checked before a scaler divides them.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "halftape/autograd/tape/grad_tag.h"
#include "halftape/core/contract/backend.h"
#include "halftape/core/machine/free_list.h"

namespace halftape::amp {

/// Marks gradients between two update() calls of one scaler: Scaled while they are multiplied by
/// the scale, Unscaled once they are divided again, Useless for a sum whose terms have different
/// factors and the like. Marks are compared by address.
class ScaleTag final : public GradTag, public FreeListed {
 public:
  /// Scaled.
  ScaleTag() : kind_(Kind::Scaled) {}
  /// Unscaled, with the verdict on the gradients: () float32.
  explicit ScaleTag(Array verdict) : kind_(Kind::Unscaled), verdict_(std::move(verdict)) {}
  /// Useless. `why` gives the reason and the remedy.
  explicit ScaleTag(const char* why) : kind_(Kind::Useless), why_(why) {}
  bool is_useless() const { return kind_ == Kind::Useless; }
  std::string objection(std::string_view call, Use use) const override;
  /// A Useless mark stays so and keeps its first reason.
  Ref<GradTag> plus(const Ref<GradTag>& other) override;
  Array verdict() const override { return verdict_; }

 private:
  enum class Kind : uint8_t { Scaled, Unscaled, Useless } kind_;
  Array verdict_;
  const char* why_ = nullptr;
};

/// loss · scale; its backward pass marks the gradients with `tag`. Fills in how.x and how.y.
Tensor scaled_loss(const Tensor& loss, CheckedScale how, const Ref<GradTag>& tag);

/// Throws unless the loss is defined and floating-point.
void check_loss(const Tensor& loss, const char* call);

/// Marks a gradient as useless, with the reason that the tag gives, unless it has one already.
void make_useless(const Tensor& grad, const Ref<GradTag>& tag);

struct Gradients {
  std::span<const Tensor> parameters;
  std::vector<Array> arrays;  // one per parameter; undefined where it has no gradient
  bool any = false, any_float16 = false;
};
Gradients collect_gradients(std::span<const Tensor> parameters);

/// Throws unless the scaler may divide every gradient by its scale: each must come from a loss
/// marked `scaled`, or have been assigned or changed by the user, and lie on the scale's device.
/// float16 needs allow_fp16. `call` begins the message.
void check_divisible(const Gradients& gradients, const char* call, const Ref<GradTag>& scaled,
                     Device device, bool allow_fp16);

/// The seam for tools: called with an optimizer's parameters after the check and before their
/// gradients are divided. Null unless a tool listens. May be called on any thread.
using GradientHook = void (*)(std::span<const Tensor> parameters);
void set_gradient_hook(GradientHook hook);
void call_gradient_hook(std::span<const Tensor> parameters);

}  // namespace halftape::amp
