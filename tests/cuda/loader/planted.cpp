// A library that betrays itself: when it is loaded, it adds a line to the file HALFTAPE_PLANTED_MARK.
// It also stands in for the driver's, which need only be there for the loader to go on.
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
