// Which levels of instructions this machine has; cmake/cpu_levels.cmake compiles for them.
#pragma once
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace halftape {

/// x86-64-v3: AVX2, FMA, BMI and BMI2, F16C, MOVBE, LZCNT. A virtual machine may hide any of them.
inline bool machine_has_v3() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned f16c = 1u << 29, movbe = 1u << 22, lzcnt = 1u << 5;
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
         __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & f16c) != 0 && (c & movbe) != 0 &&
         __get_cpuid(0x80000001, &a, &b, &c, &d) != 0 && (c & lzcnt) != 0;
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

/// Dot products of two bfloat16 (AVX512_BF16).
inline bool machine_has_v4_bf16() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;  // not every compiler's __builtin_cpu_supports knows it
  return machine_has_v4() && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & (1u << 5)) != 0;
#else
  return false;
#endif
}

/// AMX for bfloat16, whose registers the system keeps as well: bits 17 and 18 of XCR0.
inline bool machine_has_amx() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned osxsave = 1u << 27, bf16 = 1u << 22, tile = 1u << 24, state = 3u << 17;
  if (!machine_has_v4_bf16() || __get_cpuid(1, &a, &b, &c, &d) == 0 || (c & osxsave) == 0 ||
      __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & bf16) == 0 || (d & tile) == 0)
    return false;
  unsigned enabled = 0, upper = 0;
  __asm__ volatile("xgetbv" : "=a"(enabled), "=d"(upper) : "c"(0));
  return (enabled & state) == state;
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
