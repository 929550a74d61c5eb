#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

#include "halftape/core/check.h"
#include "halftape/core/cpu_capability.h"

int main(int argc, char** argv) {
  try {
    halftape::get_cpu_capability();
  } catch (const halftape::Error& error) {
    std::printf("left out: %s\n", error.what());  // nothing to run with what was asked for
    return 0;
  }
  return doctest::Context(argc, argv).run();
}
