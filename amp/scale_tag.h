// What gradients remember of a loss scale; for amp's own use.
#pragma once
#include "halftape/autograd/grad_tag.h"

namespace halftape::amp {

/// Gradients between one update() of one scaler and the next, still multiplied by the scale or
/// divided by it again. Two marks are the same when they are one object.
class ScaleTag final : public GradTag {
 public:
  enum class Is : uint8_t { Scaled, Unscaled };
  explicit ScaleTag(Is is) : is_(is) {}
  std::string objection(const char* call) const override;
  std::string conflict(const GradTag* other) const override;

 private:
  Is is_;
};

}  // namespace halftape::amp
