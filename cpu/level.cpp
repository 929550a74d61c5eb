// The kernels are compiled once for every level of instructions (cmake/cpu_levels.cmake); this
// picks the best that the machine has.
#include <cstdlib>
#include <string_view>
#include <vector>

#include "halftape/core/backend.h"
#include "halftape/core/cpu_capability.h"

// In the backend.cpp of each level.
extern "C" {
halftape::Backend* halftape_cpu_baseline();
halftape::Backend* halftape_cpu_v3();
halftape::Backend* halftape_cpu_v4();
}

namespace halftape {
namespace {

struct Level {
  const char* name;
  Backend* (*backend)();
  bool runs_here;
};

/// Best first.
std::vector<Level> levels() {
  std::vector<Level> all;
#if HALFTAPE_CPU_LEVELS
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  all.push_back({"x86-64-v4", &halftape_cpu_v4, v4});
  all.push_back({"x86-64-v3", &halftape_cpu_v3, v3});
#endif
  all.push_back({"baseline", &halftape_cpu_baseline, true});
  return all;
}

Level choose() {
  const char* forced = std::getenv("HALFTAPE_CPU_CAPABILITY");
  std::string here;
  for (const Level& level : levels()) {
    if (!level.runs_here) continue;
    if (!forced || !*forced || std::string_view(forced) == level.name) return level;
    here += std::string(here.empty() ? "" : ", ") + level.name;
  }
  detail::fail("HALFTAPE_CPU_CAPABILITY=", forced, ": this build has on this machine ", here);
}

const Level& chosen() {
  static const Level level = choose();
  return level;
}

}  // namespace

Backend& cpu_backend() {
  static Backend& instance = *chosen().backend();
  return instance;
}

std::string get_cpu_capability() { return chosen().name; }

}  // namespace halftape
