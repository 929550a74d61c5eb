// Which build of its kernels the CPU backend runs.
#pragma once
#include <string>

namespace halftape {

/// "x86-64-v4" (AVX-512), "x86-64-v3" (AVX2, FMA, F16C) or "baseline": the best that this build and
/// machine have, or the one that the environment variable HALFTAPE_CPU_CAPABILITY names. Throws
/// when that is none of them. Results are the same at each, but for products at "baseline".
std::string get_cpu_capability();

/// Products of bfloat16 by the machine's dot products of two (AVX512_BF16) instead of by float32
/// multiply-adds: about twice as fast. Off by default, because subnormal numbers count as 0 in
/// them, and the sum is rounded after each of both products: other last digits than other machines
/// have. Of this process; throws when turned on where has_native_bfloat16() is false.
void set_native_bfloat16(bool on);
bool has_native_bfloat16();

}  // namespace halftape
