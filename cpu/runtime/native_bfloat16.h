// Products of bfloat16 by the CPU's own instructions for them, which are compiled apart from all
// other kernels.
#pragma once
#include <vector>

#include "halftape/core/contract/backend.h"

namespace halftape::cpu {

using PackedGemm = void (*)(const Gemm& g);
/// What computes products of bfloat16 while set_native_bfloat16(true) holds; otherwise null.
PackedGemm native_bfloat16_gemm();
struct NativeGemm {
  const char* instructions;  // "AMX" or "AVX512_BF16"
  PackedGemm gemm;
};
/// All that this build and machine have for it, the quickest first.
const std::vector<NativeGemm>& native_bfloat16_gemms();

}  // namespace halftape::cpu
