// Neighbouring calls of a captured step made one, where the contract has a name for both together.
#pragma once
#include <optional>
#include <variant>
#include <vector>

#include "halftape/core/contract/forwarding_backend.h"

namespace halftape {

/// Passes calls on, but holds some back until the next one shows whether it belongs to them: then
/// the two go on as one (Backend::cross_entropy_and_scale() and those beside it). settle() before
/// it ends: what is held back is lost with it.
///
/// Nobody sees that a call was held back. Versions are raised when it comes, and what it writes is
/// as unique as if it were done. So that memory is not kept alive, either: this is for a step whose
/// memory stays until it is replayed.
class FusedCalls final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  /// Passes on what is held back.
  void settle();

  void cross_entropy(const CrossEntropy& c) override;
  void mlp_loss(const MlpLoss& m) override;
  void scale_loss(const LossScaling& s) override;
  void check_finite(std::span<const Array> xs, const Array& found_inf, const Array& inv_scale,
                    const Array& first) override;
  void unscale(std::span<const Array> grads, const Array& inv_scale, const Array& found_inf,
               const Array& first) override;
  void list_norm(const ListNorm& n) override;
  void update(std::span<const UpdateSlot> slots, const UpdateRule& rule,
              const StepControl& control) override;
  void scaler_update(const ScalerUpdate& update, const ScalerLaw& law) override;

 private:
  struct Mlp {
    MlpLoss task;
    std::optional<LossScaling> scaling;
  };
  struct Update {
    std::vector<UpdateSlot> slots;
    UpdateRule rule;
    StepControl control;
    std::vector<Array> clipped = {};  // the gradients that it clips: their memory stays theirs
    GradientCheck clip = {};          // of those that belong to no update yet
  };
  void before(const std::string&, const Touched&) override { settle(); }
  bool judge(const GradientCheck& check);
  void take_clip(Update& update);

  // A GradientCheck divides; or clips: without found_inf it only multiplies.
  std::variant<std::monostate, CrossEntropy, Mlp, GradientCheck, Update> held_;
};

}  // namespace halftape
