#include <start.h>

#include <doctest/doctest.h>
#include <halftape/core/bit_cast.h>
#include <support/course.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace {

using Gradients = std::vector<std::vector<float>>;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// Unscales a copy, and holds it to plain division and to the verdict.
void expect(const Gradients& given, float scale, bool wanted) {
  Gradients gradients = given;
  const bool found = unscale_(gradients, scale);
  REQUIRE_MESSAGE(gradients.size() == given.size(), "the number of gradients changed");
  for (size_t i = 0; i < given.size(); ++i) {
    REQUIRE_MESSAGE(gradients[i].size() == given[i].size(),
                    "the length of gradient " << i << " changed");
    for (size_t j = 0; j < given[i].size(); ++j) {
      const float quotient = given[i][j] / scale, got = gradients[i][j];
      const bool same =
          halftape::bit_cast<uint32_t>(got) == halftape::bit_cast<uint32_t>(quotient) ||
          (std::isnan(got) && std::isnan(quotient));
      REQUIRE_MESSAGE(
          same, course::text("number ", j, " of gradient ", i, " was ", given[i][j], " and is ",
                             got, "; divided by ", scale, " it is ", quotient));
    }
  }
  const bool right = found == wanted;
  REQUIRE_MESSAGE(right,
                  (wanted ? std::string("the verdict is false, though a number is not finite")
                          : std::string("the verdict is true, though all numbers are finite")));
}

}  // namespace

TEST_CASE("the gradients behind a bad one are divided, too") {
  expect({{8, 16}, {kInf}, {24}, {32, 40}}, 8, true);
  expect({{kNaN}, {24}}, 8, true);
}

TEST_CASE("so are the numbers beside a bad one") {
  expect({{8, kInf, 16}}, 8, true);
  expect({{8, 16, -kInf}}, 8, true);
  expect({{8, kNaN, 16}}, 8, true);
}

TEST_CASE("a scale below 1 makes numbers infinite, and that is found") {
  expect({{1, 2}, {3e38f}}, 0.25f, true);
  expect({{1, 2}, {3e37f}}, 0.25f, false);
}

TEST_CASE("each number is the quotient itself, not a product with 1 / scale") {
  expect({{1, 2, -5}, {7e-3f, 0}}, 3, false);
  expect({{1e-5f, -3}}, 65535, false);
  expect({{0x1p-130f, 0x1p-135f, 0}}, 0x1p-140f, false);
}

TEST_CASE("a thousand random lists are divided and judged rightly") {
  course::Random random(5);
  for (int i = 0; i < 1000; ++i) {
    Gradients gradients(random.below(4));
    bool bad = false;
    const auto scale = static_cast<float>(
        std::ldexp(1 + random.uniform(), static_cast<int>(random.below(60)) - 20));
    for (auto& gradient : gradients) {
      gradient.resize(random.below(6));
      for (float& x : gradient) {
        x = static_cast<float>(
            std::ldexp(random.uniform() - 0.5, static_cast<int>(random.below(200)) - 75));
        if (random.below(20) == 0) x = random.below(2) ? kInf : kNaN;
        bad |= !std::isfinite(x / scale);
      }
    }
    expect(gradients, scale, bad);
  }
}
