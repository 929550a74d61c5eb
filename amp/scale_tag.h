// The mark on gradients of a scaled loss; internal.
#pragma once
#include <string>
#include <string_view>

#include "halftape/autograd/tape/grad_tag.h"
#include "halftape/core/contract/backend.h"
#include "halftape/core/machine/free_list.h"

namespace halftape::amp {

/// Marks gradients between two update() calls of one scaler: Scaled while they are multiplied by
/// the scale, Unscaled once they are divided again, Mixed for a sum whose terms have different
/// factors. Marks are compared by address.
class ScaleTag final : public GradTag, public FreeListed {
 public:
  enum class Kind : uint8_t { Scaled, Unscaled, Mixed };
  explicit ScaleTag(Kind kind) : kind_(kind) {}
  /// Mixed. `why` names the terms and the remedy.
  explicit ScaleTag(const char* why) : kind_(Kind::Mixed), why_(why) {}
  std::string objection(std::string_view call, Use use) const override;
  /// A Mixed mark stays Mixed and keeps its first reason.
  Ref<GradTag> plus(const Ref<GradTag>& other) override;

 private:
  Kind kind_;
  const char* why_ = nullptr;
};

/// loss · scale; its backward pass marks the gradients with `tag`. Fills in how.loss and
/// how.scaled.
Tensor scaled_loss(const Tensor& loss, LossScaling how, const Ref<GradTag>& tag);

/// Throws unless the loss is defined and floating-point.
void check_loss(const Tensor& loss, const char* call);

}  // namespace halftape::amp
