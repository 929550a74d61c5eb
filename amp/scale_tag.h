// What gradients remember of a loss scale; for amp's own use.
#pragma once
#include <string>
#include <string_view>

#include "halftape/autograd/tape/grad_tag.h"
#include "halftape/core/contract/backend.h"
#include "halftape/core/machine/free_list.h"

namespace halftape::amp {

/// Gradients between one update() of one scaler and the next, still multiplied by the scale or
/// divided by it again; or Mixed: sums of terms that are not multiplied by one and the same number.
/// Two marks are the same when they are one object.
class ScaleTag final : public GradTag, public FreeListed {
 public:
  enum class Is : uint8_t { Scaled, Unscaled, Mixed };
  explicit ScaleTag(Is is) : is_(is) {}
  /// Mixed. `why`: what was added to what, and the way out.
  explicit ScaleTag(const char* why) : is_(Is::Mixed), why_(why) {}
  std::string objection(std::string_view call, Use use) const override;
  /// What is mixed stays mixed, for its first reason.
  Ref<GradTag> plus(const Ref<GradTag>& other) override;

 private:
  Is is_;
  const char* why_ = nullptr;
};

/// loss · scale, whose backward pass marks the gradients it leaves. `how` lacks the loss itself and
/// the place for the result.
Tensor scaled_loss(const Tensor& loss, LossScaling how, const Ref<GradTag>& tag);

/// Throws unless it is a tensor that can be scaled.
void check_loss(const Tensor& loss, const char* call);

/// What a scaler may divide: a gradient that came of `now`, or is the user's own. Throws for
/// others, and for float16 unless allowed. `parameter`: its place and shape, for the message.
struct DivisibleBy {
  const char* call;
  Ref<GradTag> now;
  bool allow_fp16;
  void check(const Tensor& grad, size_t parameter) const;
};

}  // namespace halftape::amp
