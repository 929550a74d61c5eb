// Calls, and sequences of calls in a training step, that this backend does with one kernel.
#include "halftape/cuda/fused.h"

#include <utility>

#include "halftape/core/contract/unfused.h"
#include "halftape/cuda/cuda_backend.h"

namespace halftape::cuda {
namespace {

/// Calls f with the tasks if they are of exactly these types.
template <class... Task, class F>
bool matches(std::span<const Call> calls, const F& f) {
  if (calls.size() != sizeof...(Task)) return false;
  return [&]<size_t... I>(std::index_sequence<I...>) {
    return (std::holds_alternative<const Task*>(calls[I]) && ...) &&
           f(*std::get<const Task*>(calls[I])...);
  }
  (std::index_sequence_for<Task...>());
}
template <class... Task>
bool done(void (*kernel)(const Task&...), std::span<const Call> calls) {
  return matches<Task...>(calls, [&](const Task&... t) { return kernel(t...), true; });
}

}  // namespace

void CudaBackend::cross_entropy(const CrossEntropy& c) {
  if (!cross_entropy_fused(c)) mean_unfused(*this, c);
}

bool CudaBackend::try_fused(std::span<const Call> calls) {
  const auto loss = [&](const CrossEntropy& c, const CheckedScale& s) {
    if (cross_entropy_fused(c, &s)) return true;
    mean_unfused(*this, c);
    run(s);
    return true;
  };
  const auto step = [&](const ListUpdate& u, const Transition& t) {
    if (!update_and_transition(u, t)) transition(t);
    return true;
  };
  const auto mlp = [](const MlpLoss& m, const auto&... rest) {
    return mlp_loss_fused(m, &rest...);
  };
  return done(cross_entropy_grad, calls) || done(check_and_norm, calls) ||
         matches<CheckedScale>(calls, scale_fused) || matches<Push>(calls, push_fused) ||
         matches<DropoutTask>(calls, dropout_fused) || matches<Attention>(calls, attention_fused) ||
         matches<AttentionGrad>(calls, attention_grad_fused) ||
         matches<CrossEntropy, CheckedScale>(calls, loss) || matches<MlpLoss>(calls, mlp) ||
         matches<MlpLoss, CheckedScale>(calls, mlp) ||
         matches<MlpLoss, CheckedScale, GradientCheck>(calls, mlp) ||
         matches<ListUpdate, Transition>(calls, step);
}

}  // namespace halftape::cuda
