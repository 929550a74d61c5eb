// An MLP's loss and its gradients in calls of their own, for backends: what they cannot do at once,
// they do so, and this is what is meant.
#pragma once
#include "halftape/core/contract/backend.h"

namespace halftape {

void mlp_loss_unfused(Backend& on, const MlpLoss& m);

/// Is it one of those that a backend may do at once: of 16 bits, with few and narrow layers? Of
/// others the steps are better taken one by one, so that backward finds what forward has computed.
bool is_small(const MlpLoss& m);
inline constexpr int64_t kSmallWidth = 128;
inline constexpr size_t kFewLayers = 8;

}  // namespace halftape
