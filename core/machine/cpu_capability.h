// The instruction level of the kernels that the CPU backend runs.
#pragma once
#include <string>

namespace halftape {

/// "x86-64-v4" (AVX-512), "x86-64-v3" (AVX2, FMA, F16C) or "baseline": the best that this build and
/// machine have, or the one that the environment variable HALFTAPE_CPU_CAPABILITY names. Throws
/// for any other name. On 64-bit Arm always "armv8-a". Results are the same at each level, except
/// for products of float64, those at "baseline", and those of bfloat16 as below.
std::string get_cpu_capability();

/// Whether products of bfloat16 use the machine's dot products of two (AVX512_BF16) instead of
/// float32 multiply-adds. On by default on AMD's CPUs, where they are twice as fast; those of Intel
/// are half as fast. They are no less accurate, but count subnormal numbers as 0, and only without
/// them all machines give the same bits. Holds for this process; throws if turned on while
/// has_native_bfloat16() is false.
void set_native_bfloat16(bool on);
bool uses_native_bfloat16();
/// Whether this build and machine, at get_cpu_capability(), have such dot products.
bool has_native_bfloat16();

}  // namespace halftape
