// How many threads this process has.
#pragma once
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

namespace halftape::testing {

/// 0 on systems other than Linux, which do not say.
inline int thread_count() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (int count = 0; word == "Threads:" && status >> count) return count;
  return 0;
}

/// True once there are no more than so many. A thread that was joined may still be ending, for at
/// most two seconds.
inline bool threads_fall_to(int most) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (thread_count() > most) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace halftape::testing
