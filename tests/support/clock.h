// Time that passes.
#pragma once
#include <chrono>
#include <thread>

namespace halftape::testing {

using Clock = std::chrono::steady_clock;

inline std::chrono::milliseconds since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
}
inline void pause(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

}  // namespace halftape::testing
