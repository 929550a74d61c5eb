#include <start.h>

#include <doctest/doctest.h>
#include <support/course.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <vector>

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

void expect(const std::vector<float>& history, Format format, int margin, float current,
            float wanted) {
  const float got = scale_for(history, format, margin, current);
  REQUIRE_MESSAGE(
      got == wanted,
      course::text("the scale is ", got, "; it should be ", wanted, " (format up to ",
                   format.largest, ", margin ", margin, ", amax ",
                   history.empty() ? 0 : *std::max_element(history.begin(), history.end()), ")"));
}

}  // namespace

TEST_CASE("the largest amax fits at the scale, and at twice the scale it would not") {
  expect({1}, kE4M3, 0, 1, 256);
  expect({448}, kE4M3, 0, 1, 1);
  expect({449}, kE4M3, 0, 1, 0.5);
  expect({1}, kE5M2, 0, 1, 32768);
  course::Random random(11);
  for (int i = 0; i < 10000; ++i) {
    const auto amax = static_cast<float>(
        std::ldexp(1 + random.uniform(), static_cast<int>(random.below(100)) - 50));
    const Format format = random.below(2) ? kE4M3 : kE5M2;
    const float got = scale_for(std::vector<float>{amax}, format, 0, 1);
    const bool right = got * amax <= format.largest && 2 * got * amax > format.largest &&
                       std::exp2(std::ilogb(got)) == got;
    REQUIRE_MESSAGE(right,
                    course::text("amax ", amax, " gives the scale ", got, ": the product is ",
                                 got * amax, ", the largest number ", format.largest));
  }
}

TEST_CASE("an outlier counts for as long as it is in the history") {
  expect({1, 1, 64, 1}, kE4M3, 0, 1, 4);
  expect({64, 1, 1, 1}, kE4M3, 0, 1, 4);
  expect({1, 1, 1, 1}, kE4M3, 0, 1, 256);
}

TEST_CASE("each step of the margin halves the scale") {
  for (int margin = 0; margin < 6; ++margin)
    expect({3, 1}, kE5M2, margin, 1, std::ldexp(16384.0f, -margin));
}

TEST_CASE("zeros, infinities and NaNs say nothing, and without anything the scale stays") {
  expect({}, kE4M3, 0, 16, 16);
  expect({0, 0}, kE4M3, 2, 16, 16);
  expect({kNaN, kInf, 0}, kE5M2, 0, 0.25, 0.25);
  expect({kNaN, 1, kInf}, kE4M3, 0, 16, 256);
  expect({1, kNaN}, kE4M3, 0, 16, 256);
}

TEST_CASE("float32 holds the scale, however small or large the tensor is") {
  expect({0x1p-149f}, kE5M2, 0, 1, 0x1p127f);
  expect({0x1p-130f}, kE4M3, 0, 1, 0x1p127f);
  expect({0x1p127f}, kE4M3, 20, 1, 0x1p-126f);
  expect({0x1p100f}, kE4M3, 0, 1, 0x1p-92f);
}

TEST_CASE("a margin of 1 saves a tensor that grows by less than 2 in a step, and none does not") {
  for (const int margin : {0, 1}) {
    course::Random random(1);
    std::deque<float> history{1};
    float scale = 1, amax = 1;
    int saturated = 0;
    for (int step = 0; step < 1000; ++step) {
      scale = scale_for(std::vector<float>(history.begin(), history.end()), kE4M3, margin, scale);
      amax *= static_cast<float>(0.55 + 1.4 * random.uniform());
      amax = std::clamp(amax, 1e-6f, 1e6f);
      saturated += amax * scale > kE4M3.largest;
      history.push_back(amax);
      if (history.size() > 16) history.pop_front();
    }
    if (margin == 1)
      CHECK_MESSAGE(saturated == 0,
                    course::text(saturated, " of 1000 steps saturated in spite of the margin"));
    else
      CHECK_MESSAGE(saturated > 0, "without a margin no step saturated: the scale is too small");
  }
}
