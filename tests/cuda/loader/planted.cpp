// A library that adds a line to the file HALFTAPE_PLANTED_MARK when it is loaded. With DRIVER it
// replaces the driver's library, without which the loader does not search.
#include <cstdio>
#include <cstdlib>

#if defined(DRIVER)
extern "C" int halftape_no_driver() { return 0; }
#else
namespace {
[[gnu::constructor]] void mark() {
  const char* const path = std::getenv("HALFTAPE_PLANTED_MARK");
  if (std::FILE* file = path ? std::fopen(path, "a") : nullptr) {
    std::fputs("loaded\n", file);
    std::fclose(file);
  }
}
}  // namespace
#endif
