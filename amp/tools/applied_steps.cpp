#include "halftape/amp/tools/applied_steps.h"

#include "halftape/autograd/ops/elementwise/binary.h"
#include "halftape/autograd/ops/elementwise/compare.h"
#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/autograd/tape/policy.h"

namespace halftape::amp {

AppliedSteps::AppliedSteps(int64_t look_every) : look_every_(look_every) {
  HALFTAPE_CHECK(look_every > 0, "AppliedSteps: look_every ", look_every, " must be positive");
}

bool AppliedSteps::count(const StepResult& result) {
  if (!result.had_gradients) return false;
  const NoGradGuard no_grad;
  const PolicyScope as_they_are(nullptr);
  const Tensor skipped = result.skipped();
  if (skipped.defined()) {
    const Tensor one = skipped.ne(0).to(kInt64);
    skips_ = skips_.defined() ? skips_ + one : one;
  }
  if (++steps_ % look_every_ == 0) look();
  if (steps_to_hold_ == 0) return true;
  --steps_to_hold_;
  return false;
}

void AppliedSteps::look() {
  steps_to_hold_ += loaded_skips_ + (skips_.defined() ? skips_.item<int64_t>() : 0);
  loaded_skips_ = 0;
  skips_ = Tensor();
}

void AppliedSteps::fields(optim::StateFields& f) {
  f.owner = "AppliedSteps";
  f.add("look_every", look_every_, optim::kAtLeastOne);
  f.add("steps", steps_, optim::kNonNegative);
  f.add("skips", loaded_skips_, optim::kNonNegative);
  f.add("to_hold", steps_to_hold_, optim::kNonNegative);
}

optim::SchedulerState AppliedSteps::state_dict() const {
  AppliedSteps now = *this;
  if (skips_.defined()) now.loaded_skips_ += skips_.item<int64_t>();
  return optim::StateFields([&](optim::StateFields& f) { now.fields(f); }).save();
}

void AppliedSteps::load_state_dict(const optim::SchedulerState& saved) {
  optim::StateFields([this](optim::StateFields& f) { fields(f); }).load(saved);
  skips_ = Tensor();
}

}  // namespace halftape::amp
