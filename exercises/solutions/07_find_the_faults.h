// Exercise 7: tests that tell right scalers from faulty ones.
#pragma once
#include <cmath>
#include <limits>

#include "07_find_the_faults/scaler.h"

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// Does the scale move as promised, over a series of good and bad steps?
inline bool moves_rightly(const Make& make) {
  const auto scaler = make(8, 3);
  const std::vector<float> expected{8, 8, 16, 16, 16, 32, 32, 32, 16, 16, 16, 32, 16, 8, 8, 8, 16};
  const std::vector<bool> bad{0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0, 0};
  for (size_t i = 0; i < bad.size(); ++i) {
    Groups gradients{{1, bad[i] ? kInf : 1}};
    if (scaler->step(gradients) == bad[i]) return false;
    scaler->update();
    if (scaler->scale() != expected[i]) return false;
  }
  return true;
}

/// Are all gradients divided by the scale at which they were computed?
inline bool divides_rightly(const Make& make) {
  for (const float third : {1.0f, kInf}) {
    const auto scaler = make(4, 2);
    for (int step = 0; step < 5; ++step) {
      const float scale = scaler->scale();
      Groups gradients{{8 * scale, scale}, {}, {third, scale}, {-2 * scale}};
      scaler->step(gradients);
      if (gradients[0] != std::vector<float>{8, 1} ||
          gradients[2] != std::vector<float>{third / scale, 1} ||
          gradients[3] != std::vector<float>{-2})
        return false;
      scaler->update();
    }
  }
  return true;
}

/// Is every infinity and every NaN found, wherever it is, and does the scale follow?
inline bool finds_rightly(const Make& make) {
  for (const float bad : {kInf, -kInf, kNaN})
    for (size_t place = 0; place < 5; ++place) {
      const auto scaler = make(64, 100);
      Groups gradients{{1, 1}, {1, 1}, {1, 1}};
      gradients[place / 2][place % 2] = bad;
      if (place == 4) gradients[0][1] = bad;  // two at once
      if (scaler->step(gradients)) return false;
      scaler->update();
      if (scaler->scale() != 32) return false;
      Groups good{{1, 1}, {1, 1}, {1, 1}};
      if (!scaler->step(good)) return false;
      scaler->update();
      if (scaler->scale() != 32) return false;
    }
  return true;
}
