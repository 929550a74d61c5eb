#include "halftape/cpu/fused.h"

namespace halftape::cpu {

bool CpuBackend::try_fused(std::span<const Call> calls) {
  if (calls.size() != 1) return false;
  if (const auto* s = std::get_if<const CheckedScale*>(&calls[0])) return scale_one(**s);
  if (const auto* a = std::get_if<const Attention*>(&calls[0])) return attention(*this, **a), true;
  if (const auto* d = std::get_if<const AttentionGrad*>(&calls[0]))
    return attention_grad(*this, **d), true;
  return false;
}

}  // namespace halftape::cpu
