// Kernels are compiled for one or more levels of instructions (cmake/cpu_levels.cmake, which
// defines HALFTAPE_CPU_V4 and so on for each); this picks the best that the machine has.
#include <atomic>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "halftape/core/contract/backend.h"
#include "halftape/core/machine/cpu_capability.h"
#include "halftape/core/machine/os.h"
#include "halftape/cpu/runtime/machine_level.h"
#include "halftape/cpu/runtime/native_bfloat16.h"

// In the cpu_backend.cpp of each level.
extern "C" {
halftape::Backend* halftape_cpu_baseline();
halftape::Backend* halftape_cpu_v3();
halftape::Backend* halftape_cpu_v4();
// In cpu/gemm/packed_gemm.cpp.
void halftape_cpu_v4_bf16(const halftape::Gemm& g);
void halftape_cpu_v4_amx(const halftape::Gemm& g);
}

namespace halftape {
namespace {

struct Level {
  const char* name;
  Backend* (*backend)();
};

/// Best first.
std::vector<Level> levels() {
  std::vector<Level> all;
#if HALFTAPE_CPU_V4
  if (machine_has_v4()) all.push_back({"x86-64-v4", &halftape_cpu_v4});
#endif
#if HALFTAPE_CPU_V3
  if (machine_has_v3()) all.push_back({"x86-64-v3", &halftape_cpu_v3});
#endif
#if HALFTAPE_CPU_BASELINE
#if defined(__aarch64__)
  all.push_back({"armv8-a", &halftape_cpu_baseline});
#else
  all.push_back({"baseline", &halftape_cpu_baseline});
#endif
#endif
  return all;
}

#if HALFTAPE_CPU_V4
constexpr const char* kOnly = "AVX-512 (x86-64-v4)";
#else
constexpr const char* kOnly = "AVX2 (x86-64-v3)";
#endif

Level choose() {
  const char* forced = std::getenv("HALFTAPE_CPU_CAPABILITY");
  std::string here;
  for (const Level& level : levels()) {
    if (!forced || !*forced || std::string_view(forced) == level.name) return level;
    here += std::string(here.empty() ? "" : ", ") + level.name;
  }
  HALFTAPE_CHECK(!here.empty(), "this build's CPU kernels are for machines with ", kOnly,
                 " alone, and this machine has none: configure with "
                 "-DHALFTAPE_CPU_LEVELS=all");
  detail::fail("HALFTAPE_CPU_CAPABILITY=", forced, ": this build has on this machine ", here);
}

const Level& chosen() {
  static const Level level = choose();
  return level;
}

struct NativeBFloat16 {
  std::vector<cpu::NativeGemm> gemms;  // the quickest first
  bool by_default = false;
  NativeBFloat16() {
#if HALFTAPE_CPU_V4
    if (chosen().backend != &halftape_cpu_v4) return;
#if HALFTAPE_CPU_V4_AMX
    if (machine_has_amx() && os::may_use_amx()) {
      gemms.push_back({"AMX", &halftape_cpu_v4_amx});
      by_default = true;
    }
#endif
#if HALFTAPE_CPU_V4_BF16
    // Intel's add two products in the time of four multiply-adds.
    if (machine_has_v4_bf16()) {
      gemms.push_back({"AVX512_BF16", &halftape_cpu_v4_bf16});
      by_default = by_default || machine_is_amd();
    }
#endif
#endif
  }
};
const NativeBFloat16& native() {
  static const auto& native = *new NativeBFloat16;  // NOLINT: for products of dying statics
  return native;
}

enum Choice { kByDefault, kOff, kOn };
std::atomic<Choice> choice = kByDefault;

}  // namespace

const std::vector<cpu::NativeGemm>& cpu::native_bfloat16_gemms() { return native().gemms; }
cpu::PackedGemm cpu::native_bfloat16_gemm() {
  return uses_native_bfloat16() ? native().gemms.front().gemm : nullptr;
}

Backend& cpu_backend() {
  static Backend& backend = *chosen().backend();
  return backend;
}

std::string get_cpu_capability() { return chosen().name; }

bool has_native_bfloat16() { return !native().gemms.empty(); }

void set_native_bfloat16(bool on) {
  HALFTAPE_CHECK(!on || has_native_bfloat16(),
                 "set_native_bfloat16: this build has on this machine, at ", get_cpu_capability(),
                 ", no instructions for bfloat16; ask has_native_bfloat16()");
  choice = on ? kOn : kOff;
}

bool uses_native_bfloat16() {
  const Choice now = choice.load(std::memory_order_relaxed);
  return now == kByDefault ? native().by_default : now == kOn;
}

}  // namespace halftape
