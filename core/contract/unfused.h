// The plain meaning of a call that a device may do at once: by other calls of the contract.
#pragma once
#include "halftape/core/contract/backend.h"

namespace halftape {

void unfused(Backend& on, const CrossEntropyGrad& c);
void unfused(Backend& on, const MlpLoss& m);  // mlp_loss_unfused.cpp
void unfused(Backend& on, const LossScaling& s);
void unfused(Backend& on, const Push& p);

/// `total` and `mean` of a CrossEntropy whose `loss` and `counted` are there.
void mean_unfused(Backend& on, const CrossEntropy& c);

}  // namespace halftape
