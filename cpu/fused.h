// Calls that this backend does at once (Backend::try_fused), each in the file of its family.
#pragma once
#include "halftape/cpu/cpu_backend.h"

namespace halftape::cpu {

/// False, and nothing is done, unless it is of one element.
bool scale_one(const CheckedScale& s);
void attention(CpuBackend& on, const Attention& a);
void attention_grad(CpuBackend& on, const AttentionGrad& d);

}  // namespace halftape::cpu
