#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "halftape/core/check.h"
#include "halftape/core/machine/cpu_capability.h"

int main(int argc, char** argv) {
  try {
    halftape::get_cpu_capability();
  } catch (const halftape::Error& error) {
    const std::string_view asked = std::getenv("HALFTAPE_CPU_CAPABILITY");
    const bool is_one = asked == "x86-64-v3" || asked == "x86-64-v4";
    std::printf("%s: %s\n", is_one ? "left out" : "refused", error.what());
    return is_one ? 0 : 1;
  }
  return doctest::Context(argc, argv).run();
}
