// Exercise 7: tests that tell right scalers from faulty ones. README.md says what is asked.
#pragma once
#include <cmath>
#include <limits>
#include <stdexcept>

#include "07_find_the_faults/scaler.h"

/// Does the scale move as promised, over a series of good and bad steps?
inline bool moves_rightly(const Make& make) {
  // At most 15 lines of yours instead of this one.
  throw std::logic_error("moves_rightly() is not written yet");
}

/// Are all gradients divided by the scale at which they were computed?
inline bool divides_rightly(const Make& make) {
  // At most 15 lines of yours instead of this one.
  throw std::logic_error("divides_rightly() is not written yet");
}

/// Is every infinity and every NaN found, wherever it is, and does the scale follow?
inline bool finds_rightly(const Make& make) {
  // At most 15 lines of yours instead of this one.
  throw std::logic_error("finds_rightly() is not written yet");
}
