// One target under libFuzzer: HALFTAPE_FUZZ_TARGET=npy halftape_libfuzzer CORPUS. scripts/fuzz runs
// it.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "target.h"

using namespace halftape;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static const fuzz::Target target = [] {
    const char* name = std::getenv("HALFTAPE_FUZZ_TARGET");
    for (const fuzz::Target& t : fuzz::targets())
      if (name && t.name == name) return t;
    std::fprintf(stderr, "HALFTAPE_FUZZ_TARGET names no target\n");
    std::exit(2);
  }();
  fuzz::run(target, {reinterpret_cast<const char*>(bytes), size});
  return 0;
}
