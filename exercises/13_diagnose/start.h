// Exercise 13: what is wrong with this training? README.md says what is asked.
#pragma once
#include <support/training.h>

#include <cmath>
#include <cstdio>
#include <stdexcept>

/// For you: every 12th line of a log.
inline void show(const course::Log& log) {
  for (const course::LogLine& line : log)
    if (line.step % 12 == 0)
      std::printf("step %3d  loss %8.3g  scale %8.2g  %s %-10s  norm %8.3g  zeros %.3f\n",
                  line.step, line.loss, line.scale, line.skipped ? "skipped" : "       ",
                  line.first_bad.c_str(), line.gradient_norm, line.zeros);
  std::puts("");
}

inline course::Cause diagnose(const course::Log& log) {
  // At most 15 lines of yours instead of these; begin with show(log).
  throw std::logic_error("diagnose() is not written yet");
}
