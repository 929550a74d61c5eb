// The mark of gradients that no other rank has seen yet.
#pragma once
#include <string>
#include <utility>

#include "halftape/autograd/tape/grad_tag.h"

namespace halftape::distributed {

/// Objects to every use of a gradient but adding to it. Holds the mark that the gradient had.
class LocalTag final : public GradTag {
 public:
  explicit LocalTag(Ref<GradTag> inner) : inner_(std::move(inner)) {}
  const Ref<GradTag>& inner() const { return inner_; }
  std::string objection(std::string_view call, Use) const override {
    return std::string(call) +
           ": the gradients are this rank's alone, of a backward() under no_sync(), one that runs, "
           "or one that failed; the last backward() before a step must be outside of no_sync() and "
           "have ended, and after a failure zero_grad() forgets them";
  }
  Ref<GradTag> plus(const Ref<GradTag>& other) override {
    if (inner_ == other) return Ref<GradTag>(this);
    return make_ref<LocalTag>(inner_ ? inner_->plus(other) : other->plus(inner_));
  }
  Array verdict() const override { return inner_ ? inner_->verdict() : Array(); }

 private:
  Ref<GradTag> inner_;
};

}  // namespace halftape::distributed
