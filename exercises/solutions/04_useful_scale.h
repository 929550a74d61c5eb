// Exercise 4: which scale is good enough?
#pragma once
#include <halftape/core/half.h>
#include <support/training.h>

#include <cmath>
#include <cstddef>
#include <optional>

/// ‖g′ − g‖ / ‖g‖, when the activation gradients are stored as halves at scale 2^k.
inline double gradient_error(const course::Layer& layer, int k) {
  const auto stored = [&](float delta) {
    return std::ldexp(
        static_cast<double>(halftape::Half(std::ldexp(static_cast<double>(delta), k))), -k);
  };
  double wrong = 0, right = 0;
  for (int64_t o = 0; o < layer.out; ++o)
    for (int64_t i = 0; i < layer.in; ++i) {
      double g = 0, difference = 0;
      for (int64_t b = 0; b < layer.batch; ++b) {
        const float delta = layer.delta[static_cast<size_t>(b * layer.out + o)];
        const double input = layer.input[static_cast<size_t>(b * layer.in + i)];
        g += delta * input;
        difference += (stored(delta) - delta) * input;
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
