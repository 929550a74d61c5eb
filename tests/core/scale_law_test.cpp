// The law of the loss scale, core/formula/scale.h, as a table: state and verdict in, state out.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "halftape/core/formula/scale.h"
#include "halftape/tests/support/nonfinite.h"

using namespace halftape;
using testing::kInf, testing::kNaN;

namespace {

constexpr float largest = std::numeric_limits<float>::max();
constexpr float smallest = std::numeric_limits<float>::denorm_min();

ScaleLaw every(int64_t interval) {
  ScaleLaw law;
  law.growth_interval = interval;
  return law;
}
ScaleLaw bounded(double low, double high) {
  ScaleLaw law = every(1);
  law.min_scale = low;
  law.max_scale = high;
  return law;
}
ScaleLaw factors(double growth, double backoff) {
  ScaleLaw law = every(1);
  law.growth_factor = growth;
  law.backoff_factor = backoff;
  return law;
}

ScaleLaw tolerant(int64_t hysteresis, Hysteresis refill) {
  ScaleLaw law = every(3);
  law.hysteresis = hysteresis;
  law.refill = refill;
  return law;
}
constexpr Hysteresis kClean = Hysteresis::RefilledByCleanStep;
constexpr Hysteresis kGrowth = Hysteresis::RefilledByGrowth;

struct Row {
  const char* what;
  ScaleState before;
  bool found_inf;
  ScaleLaw law;
  ScaleState after;
};

}  // namespace

TEST_CASE("the scaler's law turns every state of the table into its successor") {
  const std::vector<Row> table = {
      {"a good step counts", {1024, 0}, false, every(3), {1024, 1}},
      {"one step before growth", {1024, 1}, false, every(3), {1024, 2}},
      {"growth resets the counter", {1024, 2}, false, every(3), {2048, 0}},
      {"an interval of 1 grows each time", {1024, 0}, false, every(1), {2048, 0}},
      {"an interval of 0 does too", {1024, 0}, false, every(0), {2048, 0}},
      {"a tracker beyond a lowered interval grows", {8, 100}, false, every(10), {16, 0}},
      {"an overflow halves and resets", {1024, 2}, true, every(3), {512, 0, 1}},
      {"on the very step that would have grown", {1024, 2}, true, every(3), {512, 0, 1}},
      {"other factors", {100, 0}, false, factors(1.5, 0.25), {150, 0}},
      {"other factors, back", {100, 0}, true, factors(1.5, 0.25), {25, 0, 1}},
      {"growth stops at the upper bound", {768, 0}, false, bounded(0, 1000), {1000, 0}},
      {"and stays there", {1000, 0}, false, bounded(0, 1000), {1000, 0}},
      {"backoff stops at the lower bound", {1.5f, 0}, true, bounded(1, 1000), {1, 0, 1}},
      {"and stays there", {1, 0}, true, bounded(1, 1000), {1, 0, 1}},
      {"growth beyond float's range is not taken", {0x1p127f, 0}, false, every(1), {0x1p127f, 0}},
      {"nor from the largest float", {largest, 0}, false, every(1), {largest, 0}},
      {"backoff below the smallest float gives 0", {smallest, 0}, true, every(1), {0, 0, 1}},
      {"unless there is a bound", {smallest, 0}, true, bounded(smallest, kInf), {smallest, 0, 1}},
      {"the first of two overflows only resets", {8, 2}, true, tolerant(2, kClean), {8, 0, 1}},
      {"the second in a row halves", {8, 0, 1}, true, tolerant(2, kClean), {4, 0, 2}},
      {"and so does the third", {4, 0, 2}, true, tolerant(2, kClean), {2, 0, 2}},
      {"a clean step refills", {8, 0, 1}, false, tolerant(2, kClean), {8, 1, 0}},
      {"or does not", {8, 0, 1}, false, tolerant(2, kGrowth), {8, 1, 1}},
      {"growth does", {8, 2, 2}, false, tolerant(2, kGrowth), {16, 0, 0}},
      {"a lowered hysteresis halves at once", {8, 0, 3}, true, tolerant(2, kClean), {4, 0, 3}},
  };
  for (const Row& row : table) {
    CAPTURE(row.what);
    const ScaleState after = next(row.before, row.found_inf, row.law);
    CHECK(after.scale == row.after.scale);
    CHECK(after.growth_tracker == row.after.growth_tracker);
    CHECK(after.overflows == row.after.overflows);
  }
}

TEST_CASE("the law's defaults are those of torch.amp") {
  const ScaleLaw law;
  CHECK(law.growth_factor == 2);
  CHECK(law.backoff_factor == 0.5);
  CHECK(law.growth_interval == 2000);
  CHECK(ScaleState{}.scale == 65536);
  CHECK(ScaleState{}.growth_tracker == 0);
  ScaleState s;
  for (int i = 0; i < 1999; ++i) s = next(s, false, law);
  CHECK(s.scale == 65536);
  CHECK(s.growth_tracker == 1999);
  s = next(s, false, law);
  CHECK(s.scale == 131072);
  CHECK(s.growth_tracker == 0);
}

TEST_CASE("the scale is finite and not NaN after any history") {
  // From any initial scale, with any outcomes of the steps.
  for (const float start : {0.0f, smallest, 1.0f, 0x1p127f, largest}) {
    for (const double growth : {1.0, 2.0, 1e10, 1e300}) {
      CAPTURE(start);
      CAPTURE(growth);
      ScaleState s{start, 0};
      const ScaleLaw law = factors(growth, 0.5);
      uint32_t coin = 12345;
      for (int i = 0; i < 500; ++i) {
        coin = coin * 1664525u + 1013904223u;
        s = next(s, (coin >> 28) == 0, law);
        REQUIRE(std::isfinite(s.scale));
        REQUIRE(s.scale >= 0);
      }
    }
  }
}

TEST_CASE("a scale that was set to infinity or NaN becomes finite at the next overflow") {
  for (const double bad : {kInf, kNaN}) {
    const ScaleState s = next({static_cast<float>(bad), 0}, true, ScaleLaw{});
    CHECK(std::isfinite(s.scale));
    CHECK(s.growth_tracker == 0);
  }
}

TEST_CASE("of two kinds of hysteresis one never backs off where the other halves each time") {
  // An overflow on every second step.
  ScaleState clean{65536}, growth{65536};
  for (int i = 0; i < 20; ++i) {
    clean = next(clean, i % 2 == 0, tolerant(2, kClean));
    growth = next(growth, i % 2 == 0, tolerant(2, kGrowth));
  }
  CHECK(clean.scale == 65536);
  CHECK(growth.scale == 65536 * 0x1p-9);  // the first of ten overflows passes
}

TEST_CASE("a loss that is not finite leaves the state as it is") {
  const ScaleState before{1024, 2, 1};
  const ScaleState after = next(before, Verdict::BadLoss, every(3));
  CHECK(after.scale == 1024);
  CHECK(after.growth_tracker == 2);
  CHECK(after.overflows == 1);
}

TEST_CASE("counted() counts steps, skips, skips in a row, growths and backoffs") {
  ScaleCounts c;
  const std::vector<Verdict> history = {Verdict::Finite, Verdict::Overflow, Verdict::BadLoss,
                                        Verdict::Finite, Verdict::Overflow};
  ScaleState s{8};
  for (const Verdict v : history) {
    const ScaleState after = next(s, v, every(1));
    c = counted(c, v, s.scale, after.scale);
    s = after;
  }
  CHECK(c.steps == 5);
  CHECK(c.skips == 3);
  CHECK(c.skips_in_row == 1);
  CHECK(c.bad_losses == 1);
  CHECK(c.growths == 2);
  CHECK(c.backoffs == 2);
}
