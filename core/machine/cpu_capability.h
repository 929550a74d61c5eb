// The instruction level of the kernels that the CPU backend runs.
#pragma once
#include <string>

namespace halftape {

/// "x86-64-v4" (AVX-512), "x86-64-v3" (AVX2, FMA, F16C) or "baseline": the best that this build and
/// machine have, or the one that the environment variable HALFTAPE_CPU_CAPABILITY names. Throws
/// for any other name. On 64-bit Arm always "armv8-a". Results are the same at each level, except
/// for products at "baseline".
std::string get_cpu_capability();

/// Computes products of bfloat16 with the machine's dot products of two (AVX512_BF16) instead of
/// float32 multiply-adds: about twice as fast. Off by default, because these instructions count
/// subnormal numbers as 0 and round after each product, so that the last digits differ from other
/// machines'. Holds for this process; throws if turned on while has_native_bfloat16() is false.
void set_native_bfloat16(bool on);
bool has_native_bfloat16();

}  // namespace halftape
