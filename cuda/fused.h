// Kernels for several calls of the contract at once; cuda/fused.cpp chooses them.
#pragma once
#include "halftape/core/contract/backend.h"

namespace halftape::cuda {

void cross_entropy_grad(const CrossEntropyGrad& c);
void check_and_norm(const GradientCheck& check, const ListNorm& n);
/// Returns true if the mean is computed, too (and scaled), or is not wanted.
bool cross_entropy_fused(const CrossEntropy& c, const CheckedScale* scaling = nullptr);
/// Returns true if the transition is done, too.
bool update_and_transition(const ListUpdate& u, const Transition& t);
// These return false and do nothing if the calls must be made one by one.
bool mlp_loss_fused(const MlpLoss& m, const CheckedScale* scaling = nullptr,
                    const GradientCheck* check = nullptr);
bool scale_fused(const CheckedScale& s);
bool push_fused(const Push& p);
bool dropout_fused(const DropoutTask& d);
bool attention_fused(const Attention& a);
bool attention_grad_fused(const AttentionGrad& d);

}  // namespace halftape::cuda
