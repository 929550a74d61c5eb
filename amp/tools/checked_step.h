// A training step whose order the compiler checks: each stage is a type, and offers only what may
// come next.
#pragma once
#include "halftape/amp/grad_scaler.h"
#include "halftape/optim/clip_grad.h"

namespace halftape::amp {

/// What the stages share: whose step it is. Moved from one to the next, never copied.
class StepStage {
 public:
  StepStage(StepStage&& other) noexcept
      : scaler_(std::exchange(other.scaler_, nullptr)), optimizer_(other.optimizer_) {}
  StepStage& operator=(StepStage&&) = delete;

 protected:
  StepStage(GradScaler& scaler, optim::Optimizer& optimizer)
      : scaler_(&scaler), optimizer_(&optimizer) {}
  ~StepStage() = default;
  GradScaler& scaler() const {
    HALFTAPE_CHECK(scaler_, "checked_step: this stage has moved on; go on from the one it gave");
    return *scaler_;
  }
  optim::Optimizer& optimizer() const { return *optimizer_; }
  StepResult finish() {
    StepResult result = scaler().step(optimizer());
    scaler().update();
    scaler_ = nullptr;
    return result;
  }

 private:
  GradScaler* scaler_;
  optim::Optimizer* optimizer_;
};

/// Gradients are true, and clipped.
class [[nodiscard]] Clipped : public StepStage {
 public:
  Tensor norm;  // before clipping; undefined after clip_grad_value_
  StepResult step() && { return finish(); }

 private:
  friend class Unscaled;
  Clipped(StepStage&& from, Tensor n) : StepStage(std::move(from)), norm(std::move(n)) {}
};

/// Gradients are true.
class [[nodiscard]] Unscaled : public StepStage {
 public:
  Clipped clip_grad_norm_(double max_norm, double norm_type = 2) && {
    scaler();
    Tensor norm = nn::utils::clip_grad_norm_(optim::parameters_of(optimizer().param_groups()),
                                             max_norm, norm_type);
    return {std::move(*this), std::move(norm)};
  }
  Clipped clip_grad_value_(double clip_value) && {
    scaler();
    nn::utils::clip_grad_value_(optim::parameters_of(optimizer().param_groups()), clip_value);
    return {std::move(*this), {}};
  }
  StepResult step() && { return finish(); }

 private:
  friend class Scaled;
  explicit Unscaled(StepStage&& from) : StepStage(std::move(from)) {}
};

/// Gradients are multiplied by the scale: more may be added, but they cannot be clipped.
class [[nodiscard]] Scaled : public StepStage {
 public:
  /// The gradients of a further loss, of another micro-batch say.
  Scaled& add(const Tensor& loss) {
    scaler().scale(loss).backward();
    return *this;
  }
  Unscaled unscale() && {
    scaler().unscale_(optimizer());
    return Unscaled(std::move(*this));
  }
  StepResult step() && { return finish(); }

 private:
  friend Scaled checked_step(GradScaler&, optim::Optimizer&, const Tensor&);
  Scaled(GradScaler& scaler, optim::Optimizer& optimizer) : StepStage(scaler, optimizer) {}
};

/// Backward through the scaled loss; the rest follows in the one order that there is. step() also
/// calls update(): one optimizer per scaler.
///
///     amp::checked_step(scaler, optimizer, loss).unscale().clip_grad_norm_(1.0).step();
inline Scaled checked_step(GradScaler& scaler, optim::Optimizer& optimizer, const Tensor& loss) {
  Scaled stage(scaler, optimizer);
  stage.add(loss);
  return stage;
}

}  // namespace halftape::amp
