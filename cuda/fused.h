// Kernels that do at once what the contract has as several calls; cuda/fused.cpp chooses them.
#pragma once
#include "halftape/core/contract/backend.h"

namespace halftape::cuda {

void cross_entropy_grad(const CrossEntropyGrad& c);
void push(const Push& p);
void check_and_norm(const GradientCheck& check, const ListNorm& n);
/// Returns true if the mean, should it be wanted, is computed, too; then it is also scaled.
bool cross_entropy_fused(const CrossEntropy& c, const CheckedScale* scaling = nullptr);
/// Returns true if the transition is done, too.
bool update_and_transition(const ListUpdate& u, const Transition& t);
// These return false, and have done nothing, if the calls must be made one by one.
bool mlp_loss_fused(const MlpLoss& m, const CheckedScale* scaling = nullptr,
                    const GradientCheck* check = nullptr);
bool scale_fused(const CheckedScale& s);

}  // namespace halftape::cuda
