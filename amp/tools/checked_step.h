// A training step whose order the compiler checks: each stage is a type with the calls that may
// come next.
#pragma once
#include "halftape/amp/grad_scaler.h"
#include "halftape/optim/clip_grad.h"

namespace halftape::amp {

/// The base of all stages: the scaler and the optimizer. Moved from stage to stage, never copied.
/// Every stage may be the last before step().
class StepStage {
 public:
  StepStage(StepStage&& other) noexcept
      : scaler_(std::exchange(other.scaler_, nullptr)), optimizer_(other.optimizer_) {}
  StepStage& operator=(StepStage&&) = delete;
  /// GradScaler::step() and update(); the stage is used up.
  StepResult step() && {
    StepResult result = scaler().step(optimizer());
    scaler().update();
    scaler_ = nullptr;
    return result;
  }

 protected:
  StepStage(GradScaler& scaler, optim::Optimizer& optimizer)
      : scaler_(&scaler), optimizer_(&optimizer) {}
  ~StepStage() = default;
  /// Throws when this stage has moved on.
  GradScaler& scaler() const {
    HALFTAPE_CHECK(scaler_, "checked_step: this stage has moved on; go on from the one it gave");
    return *scaler_;
  }
  optim::Optimizer& optimizer() const { return *optimizer_; }

 private:
  GradScaler* scaler_;
  optim::Optimizer* optimizer_;
};

/// Gradients are unscaled and clipped.
class [[nodiscard]] Clipped : public StepStage {
 public:
  Tensor norm;  // before clipping; undefined after clip_grad_value_

 private:
  friend class Unscaled;
  Clipped(StepStage&& from, Tensor n) : StepStage(std::move(from)), norm(std::move(n)) {}
};

/// Gradients are unscaled.
class [[nodiscard]] Unscaled : public StepStage {
 public:
  /// nn::utils::clip_grad_norm_() of all parameters.
  Clipped clip_grad_norm_(double max_norm, double norm_type = 2) && {
    scaler();
    Tensor norm = nn::utils::clip_grad_norm_(optim::parameters_of(optimizer().param_groups()),
                                             max_norm, norm_type);
    return {std::move(*this), std::move(norm)};
  }
  /// nn::utils::clip_grad_value_() of all parameters.
  Clipped clip_grad_value_(double clip_value) && {
    scaler();
    nn::utils::clip_grad_value_(optim::parameters_of(optimizer().param_groups()), clip_value);
    return {std::move(*this), {}};
  }

 private:
  friend class Scaled;
  explicit Unscaled(StepStage&& from) : StepStage(std::move(from)) {}
};

/// Gradients are multiplied by the scale: more can be added, but they cannot be clipped.
class [[nodiscard]] Scaled : public StepStage {
 public:
  /// Adds the gradients of a further loss, such as that of another micro-batch.
  Scaled& add(const Tensor& loss) {
    scaler().scale(loss).backward();
    return *this;
  }
  /// GradScaler::unscale_().
  Unscaled unscale() && {
    scaler().unscale_(optimizer());
    return Unscaled(std::move(*this));
  }

 private:
  friend Scaled checked_step(GradScaler&, optim::Optimizer&, const Tensor&);
  Scaled(GradScaler& scaler, optim::Optimizer& optimizer) : StepStage(scaler, optimizer) {}
};

/// Runs backward() on the scaled loss and returns the first stage. step() also calls update(), so a
/// scaler serves one optimizer.
///
///     amp::checked_step(scaler, optimizer, loss).unscale().clip_grad_norm_(1.0).step();
inline Scaled checked_step(GradScaler& scaler, optim::Optimizer& optimizer, const Tensor& loss) {
  Scaled stage(scaler, optimizer);
  stage.add(loss);
  return stage;
}

}  // namespace halftape::amp
