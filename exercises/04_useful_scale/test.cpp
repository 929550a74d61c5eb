#include <start.h>

#include <doctest/doctest.h>
#include <halftape/core/half.h>
#include <support/course.h>
#include <support/training.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

namespace {

/// By the weight gradients themselves, one after the other.
double right_error(const course::Layer& layer, int k) {
  std::vector<double> g(static_cast<size_t>(layer.in * layer.out)), stored = g;
  for (int64_t b = 0; b < layer.batch; ++b)
    for (int64_t o = 0; o < layer.out; ++o) {
      const double delta = layer.delta[static_cast<size_t>(b * layer.out + o)];
      const double half = static_cast<float>(halftape::Half(delta * std::exp2(k))) / std::exp2(k);
      for (int64_t i = 0; i < layer.in; ++i) {
        const double input = layer.input[static_cast<size_t>(b * layer.in + i)];
        g[static_cast<size_t>(o * layer.in + i)] += delta * input;
        stored[static_cast<size_t>(o * layer.in + i)] += half * input;
      }
    }
  double wrong = 0, norm = 0;
  for (size_t i = 0; i < g.size(); ++i) {
    wrong += (stored[i] - g[i]) * (stored[i] - g[i]);
    norm += g[i] * g[i];
  }
  return std::sqrt(wrong / norm);
}

void expect_error(const course::Layer& layer, int k) {
  const double got = gradient_error(layer, k), wanted = right_error(layer, k);
  const bool close = std::fabs(got - wanted) <= 1e-6 + 1e-3 * wanted ||
                     (!std::isfinite(wanted) && !std::isfinite(got));
  REQUIRE_MESSAGE(close,
                  course::text("at scale 2^", k, " the error is ", got, "; it should be ", wanted));
}

std::string text(std::optional<int> k) { return k ? "2^" + std::to_string(*k) : "none"; }

void expect_scale(const course::Layer& layer, double most, std::optional<int> wanted) {
  const std::optional<int> got = smallest_useful_scale(layer, most);
  REQUIRE_MESSAGE(got == wanted, course::text("the smallest scale for an error of ", most, " is ",
                                              text(got), "; it should be ", text(wanted)));
}

std::optional<int> right_scale(const course::Layer& layer, double most) {
  for (int k = -10; k <= 40; ++k)
    if (right_error(layer, k) <= most) return k;
  return {};
}

const course::Net kNet{"the chapter's"};

}  // namespace

TEST_CASE("the error of one number is that of its rounding") {
  const course::Layer layer{1, 1, 1, {3.0f}, {0x1p-26f}};
  expect_error(layer, 0);  // dead: all of it
  expect_error(layer, 1);  // 2^-25 dies, too
  expect_error(layer, 2);  // the least half
  expect_error({1, 1, 1, {1.0f}, {1.0009f}}, 0);
}

TEST_CASE("the errors of a recorded layer are right at scales from 2^-4 to 2^36") {
  const course::Layer layer = course::recorded_layer(kNet, 2, 1e-5);
  for (int k = -4; k <= 36; k += 4) expect_error(layer, k);
}

TEST_CASE("the sums are exact enough to see 2^-40 beside 1000") {
  const course::Layer layer{2, 1, 1, {1, 1}, {1000, 0x1p-40f}};
  expect_scale(layer, 0, std::nullopt);  // 2^-40 is dead, or 1000 infinite
}

TEST_CASE("small gradients may all die where a large one decides") {
  course::Layer layer{100, 1, 1, std::vector<float>(100, 1.0f), std::vector<float>(100, 0x1p-40f)};
  layer.delta[7] = 1;  // 99 of 100 are lost at scale 1, and nothing is off
  expect_error(layer, 0);
  expect_scale(layer, 1e-6, -10);
}

TEST_CASE("of a recorded layer the smallest useful scales are found") {
  for (const size_t index : {size_t{1}, size_t{2}}) {
    const course::Layer layer = course::recorded_layer(kNet, index, 1e-5);
    for (const double most : {0.3, 0.1, 0.01, 0.001})
      expect_scale(layer, most, right_scale(layer, most));
  }
}

TEST_CASE("a scale at which something overflows is not useful, and sometimes none is") {
  // Where 2^-40 survives, 1000 is infinite.
  expect_scale({1, 1, 2, {1}, {1000, 0x1p-40f}}, 0, std::nullopt);
  course::Layer layer{2, 1, 1, {1, 1}, {0x1p-60f, 0x1p-59f}};
  expect_scale(layer, 0.01, 36);
  layer.delta = {0x1p-70f, 0x1p-69f};
  expect_scale(layer, 0.5, std::nullopt);
}
