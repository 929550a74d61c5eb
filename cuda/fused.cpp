// Calls, and neighbours in a training step, that this backend does with one kernel.
#include "halftape/cuda/fused.h"

#include "halftape/cuda/cuda_backend.h"

namespace halftape::cuda {

void CudaBackend::cross_entropy(const CrossEntropy& o) {
  if (!cross_entropy_at_once(o)) mean_in_steps(o);
}

void CudaBackend::mlp_loss(const MlpLoss& m) {
  if (!mlp_loss_at_once(m)) Backend::mlp_loss(m);
}

void CudaBackend::scale_loss(const LossScaling& s) {
  if (!scale_at_once(s)) Backend::scale_loss(s);
}

void CudaBackend::cross_entropy_and_scale(const CrossEntropy& o, const LossScaling& scaling) {
  if (cross_entropy_at_once(o, &scaling)) return;
  mean_in_steps(o);
  scale_loss(scaling);
}

void CudaBackend::mlp_loss_and_scale(const MlpLoss& m, const LossScaling& scaling,
                                     const std::optional<GradientCheck>& check) {
  if (!mlp_loss_at_once(m, &scaling, check ? &*check : nullptr))
    Backend::mlp_loss_and_scale(m, scaling, check);
}

void CudaBackend::check_and_norm(const GradientCheck& check, const ListNorm& n) {
  cuda::check_and_norm(check, n);
}

void CudaBackend::update_and_move_scale(std::span<const UpdateSlot> slots, const UpdateRule& rule,
                                        const StepControl& control, const ScalerUpdate& moved,
                                        const ScalerLaw& law) {
  if (!cuda::update_and_move_scale(slots, rule, control, moved, law)) scaler_update(moved, law);
}

}  // namespace halftape::cuda
