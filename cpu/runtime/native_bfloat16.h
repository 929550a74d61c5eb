// Products of bfloat16 by the CPU's dot products, which are compiled apart from all other kernels.
#pragma once
#include "halftape/core/contract/backend.h"

namespace halftape::cpu {

using PackedGemm = void (*)(const Gemm& g);
/// What computes products of bfloat16 while set_native_bfloat16(true) holds; otherwise null.
PackedGemm native_bfloat16_gemm();

}  // namespace halftape::cpu
