// Kernels that do what several calls of the contract ask; cuda/fused.cpp chooses them.
#pragma once
#include "halftape/core/contract/backend.h"

namespace halftape::cuda {

/// Gives whether the mean, if it is wanted, is there, too; then it is scaled, if that is wanted.
bool cross_entropy_at_once(const CrossEntropy& o, const LossScaling* scaling = nullptr);
// False, and nothing done, where the calls must be made one by one.
bool mlp_loss_at_once(const MlpLoss& m, const LossScaling* scaling = nullptr,
                      const GradientCheck* check = nullptr);
bool scale_at_once(const LossScaling& s);
bool update_and_move_scale(std::span<const UpdateSlot> slots, const UpdateRule& rule,
                           const StepControl& control, const ScalerUpdate& moved,
                           const ScalerLaw& law);
void check_and_norm(const GradientCheck& check, const ListNorm& n);

}  // namespace halftape::cuda
