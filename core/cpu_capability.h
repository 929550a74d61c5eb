// Which build of its kernels the CPU backend runs.
#pragma once
#include <string>

namespace halftape {

/// "x86-64-v4" (AVX-512), "x86-64-v3" (AVX2, FMA, F16C) or "baseline": the best that this build and
/// machine have, or the one that the environment variable HALFTAPE_CPU_CAPABILITY names. Throws
/// when that is none of them.
std::string get_cpu_capability();

}  // namespace halftape
