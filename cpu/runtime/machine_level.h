// Which levels of instructions this machine has; cmake/cpu_levels.cmake compiles for them.
#pragma once

namespace halftape {

/// x86-64-v3: AVX2, FMA and BMI2.
inline bool machine_has_v3() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi2");
#else
  return false;
#endif
}

/// x86-64-v4: these and five parts of AVX-512.
inline bool machine_has_v4() {
#if defined(__x86_64__)
  return machine_has_v3() && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#else
  return false;
#endif
}

inline bool machine_is_amd() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("amd");
#else
  return false;
#endif
}

}  // namespace halftape
