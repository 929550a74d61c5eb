// Products of float32 and 16-bit matrices in registers, where the level of instructions has fused
// multiply-add. An element of the result is one chain of them over the whole depth,
//   acc = 0; for k: acc = fma(a[i, k], b[k, j], acc);
//   v = alpha·acc + beta·d (+ bias), rounded once into d,
// whatever the tiles, the threads and the layout, which therefore can be chosen for speed alone:
// the same bits at every level that has it. Of bfloat16, where the machine has dot products of it,
// the chain is of these: two products, each rounded into the sum, or 32 (see amx.h), and subnormals
// count as 0.
#pragma once
#include "halftape/core/contract/backend.h"
#include "halftape/cpu/vector/simd.h"

namespace halftape::cpu {

#ifdef HALFTAPE_SIMD
/// No bias_grad, and no epilogue but one that ends_in_tiles(); a and b are float32, float16 or
/// bfloat16, and k > 0.
void packed_gemm(const Gemm& g);
/// True if g's epilogue is worked out in a tile's registers.
bool ends_in_tiles(const Gemm& g);
#endif

}  // namespace halftape::cpu
