// The instruction level of the kernels that the CPU backend runs.
#pragma once
#include <string>

namespace halftape {

/// "x86-64-v4" (AVX-512), "x86-64-v3" (AVX2, FMA, F16C) or "baseline": the best that this build and
/// machine have, or the one that the environment variable HALFTAPE_CPU_CAPABILITY names. Throws
/// for any other name. On 64-bit Arm always "armv8-a". Results are the same at each level, except
/// for products of float64, those at "baseline", and those of bfloat16 as below.
std::string get_cpu_capability();

/// Whether products of bfloat16 use the machine's own instructions instead of float32
/// multiply-adds: its matrices (AMX) where it has them, else its dot products of two (AVX512_BF16).
/// On by default with AMX, and on AMD's CPUs, whose dot products are twice as fast; those of Intel
/// are half as fast. They are no less accurate, but count subnormal numbers as 0, and only without
/// them all machines give the same bits. Holds for this process; throws if turned on while
/// has_native_bfloat16() is false. For AMX the system makes room in the frames of the process's
/// signals: from the first product of bfloat16, or question whether there is such, sigaltstack()
/// asks for some 12 KiB, unless set_native_bfloat16(false) came first. Where a thread has a smaller
/// stack for signals by then, or the system refuses, it is as if the machine had no AMX.
void set_native_bfloat16(bool on);
bool uses_native_bfloat16();
/// Whether this build and machine, at get_cpu_capability(), have such instructions.
bool has_native_bfloat16();

}  // namespace halftape
