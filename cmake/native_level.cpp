// Prints the best level of the CPU's kernels that this machine runs, and what it has for bfloat16:
// cpu_levels.cmake asks when the build is configured.
#include <cstdio>

#include "halftape/cpu/runtime/machine_level.h"

int main() {
  const bool v3 = halftape::machine_has_v3(), v4 = halftape::machine_has_v4();
  std::fputs(v4 ? "v4" : v3 ? "v3" : "baseline", stdout);
  if (halftape::machine_has_v4_bf16()) std::fputs(";v4_bf16", stdout);
  if (halftape::machine_has_amx()) std::fputs(";v4_amx", stdout);
}
