// Exercise 4: which scale is good enough?
#pragma once
#include <halftape/core/half.h>
#include <support/training.h>

#include <cmath>
#include <cstddef>
#include <optional>

/// ‖g′ − g‖ / ‖g‖, when the activation gradients are stored as halves at scale 2^k.
inline double gradient_error(const course::Layer& layer, int k) {
  double wrong = 0, right = 0;
  for (int64_t cell = 0; cell < layer.out * layer.in; ++cell) {
    double g = 0, difference = 0;
    for (int64_t b = 0; b < layer.batch; ++b) {
      const double delta = layer.delta[static_cast<size_t>(b * layer.out + cell / layer.in)];
      const double input = layer.input[static_cast<size_t>(b * layer.in + cell % layer.in)];
      const double kept = std::ldexp(static_cast<double>(halftape::Half(std::ldexp(delta, k))), -k);
      g += delta * input;
      difference += (kept - delta) * input;
    }
    right += g * g;
    wrong += difference * difference;
  }
  return std::sqrt(wrong / right);
}

/// The smallest k in −10 … 40 whose error is at most `most`.
inline std::optional<int> smallest_useful_scale(const course::Layer& layer, double most) {
  for (int k = -10; k <= 40; ++k)
    if (gradient_error(layer, k) <= most) return k;
  return {};
}
