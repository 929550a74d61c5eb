// Exercise 13: what is wrong with this training?
#pragma once
#include <support/training.h>

#include <algorithm>
#include <cmath>

inline course::Cause diagnose(const course::Log& log) {
  using course::Cause;
  int bad_losses = 0;
  double largest = 0;
  for (const course::LogLine& line : log) {
    bad_losses += !std::isfinite(line.loss);
    largest = std::max(largest, line.loss);  // not NaN
  }
  const course::LogLine& last = log.back();
  if (largest > 10 && std::isfinite(largest)) return Cause::LearningRate;
  if (std::isinf(largest)) return Cause::ForwardOverflow;
  if (bad_losses > 0) return Cause::BadData;
  if (last.skipped && last.scale < 1) return Cause::GradientInfinite;
  return last.loss > log.front().loss / 2 ? Cause::GradientsVanish : Cause::Healthy;
}
