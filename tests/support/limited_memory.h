// A child process in which memory runs out. Not under a sanitizer, which maps all memory
// beforehand: there, what shall fill the memory would fill the machine's.
#pragma once

#include "halftape/tests/support/sanitizers.h"

#if defined(__linux__) && !HALFTAPE_SANITIZED
#define HALFTAPE_LIMITED_MEMORY 1

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <functional>

namespace halftape::testing {

/// The result of f, called in a child that may map so many bytes more than now, as limits are the
/// process's. −1 if the child ends in another way.
inline int with_memory_limit(uint64_t bytes, const std::function<int()>& f) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::ifstream sizes("/proc/self/statm");
    rlim_t pages = 0;
    sizes >> pages;
    const rlim_t room = pages * 4096 + bytes;
    const rlimit limit{room, room};
    setrlimit(RLIMIT_AS, &limit);
    try {
      _exit(f());
    } catch (...) {
      _exit(255);
    }
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace halftape::testing
#endif
