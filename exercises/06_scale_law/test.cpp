#include <start.h>

#include <doctest/doctest.h>
#include <halftape/core/formula/scale.h>
#include <support/course.h>

#include <cmath>
#include <vector>

namespace {

struct Row {
  State before;
  bool found_inf;
  State after;
};

void expect(const std::vector<Row>& rows, const Law& law) {
  for (const Row& row : rows) {
    const State got = next_state(row.before, row.found_inf, law);
    const bool right = got.scale == row.after.scale && got.good_steps == row.after.good_steps;
    CHECK_MESSAGE(right,
                  course::text(row.found_inf ? "an overflow" : "a good step", " at scale ",
                               row.before.scale, " and count ", row.before.good_steps, " gives ",
                               got.scale, " and ", got.good_steps, "; it should give ",
                               row.after.scale, " and ", row.after.good_steps));
  }
}

}  // namespace

TEST_CASE("the scale grows when the count of good steps reaches the interval") {
  const Law law{.growth_interval = 3};
  expect({{{8, 0}, false, {8, 1}},
          {{8, 1}, false, {8, 2}},
          {{8, 2}, false, {16, 0}},
          {{16, 0}, false, {16, 1}},
          {{0.5, 2}, false, {1, 0}},
          {{8, 7}, false, {16, 0}}},  // the interval was lowered meanwhile
         law);
}

TEST_CASE("an overflow makes the scale smaller and the count 0, whatever it was") {
  const Law law{.growth_interval = 3};
  expect({{{8, 0}, true, {4, 0}},
          {{8, 2}, true, {4, 0}},
          {{8, 7}, true, {4, 0}},
          {{1, 1}, true, {0.5, 0}},
          {{0x1p-20f, 0}, true, {0x1p-21f, 0}},
          {{65536, 1}, true, {32768, 0}}},
         law);
}

TEST_CASE("the bounds hold, and factors other than 2 and 1/2 work") {
  const Law law{.growth_factor = 10,
                .backoff_factor = 0.25,
                .growth_interval = 1,
                .min_scale = 2,
                .max_scale = 1000};
  expect({{{8, 0}, false, {80, 0}},
          {{80, 0}, false, {800, 0}},
          {{800, 0}, false, {1000, 0}},
          {{1000, 0}, true, {250, 0}},
          {{4, 0}, true, {2, 0}},
          {{2, 0}, true, {2, 0}}},
         law);
}

TEST_CASE("the scale never becomes infinite: growth that float32 cannot hold is not taken") {
  const Law law{.growth_interval = 2};
  expect({{{0x1p126f, 1}, false, {0x1p127f, 0}},
          {{0x1p127f, 0}, false, {0x1p127f, 1}},
          {{0x1p127f, 1}, false, {0x1p127f, 0}},
          {{0x1p127f, 9}, false, {0x1p127f, 0}},
          {{0x1p127f, 1}, true, {0x1p126f, 0}},
          {{3e38f, 1}, false, {3e38f, 0}}},
         law);
}

TEST_CASE("ten thousand random series run as the library's law does") {
  course::Random random(6);
  for (int series = 0; series < 10000; ++series) {
    halftape::ScaleLaw theirs;
    theirs.growth_factor = 1 + 4 * random.uniform();
    theirs.backoff_factor = 0.1 + 0.8 * random.uniform();
    theirs.growth_interval = 1 + static_cast<int64_t>(random.below(5));
    if (random.below(2)) theirs.min_scale = random.uniform();
    if (random.below(2)) theirs.max_scale = 1e6 * (1 + random.uniform());
    const Law law{theirs.growth_factor, theirs.backoff_factor, theirs.growth_interval,
                  theirs.min_scale, theirs.max_scale};
    halftape::ScaleState expected{.scale = static_cast<float>(1 + random.below(1000))};
    State state{expected.scale, 0};
    const uint64_t rarity = 2 + random.below(20);
    for (int step = 0; step < 50; ++step) {
      const bool found_inf = random.below(rarity) == 0;
      expected = halftape::next(expected, found_inf, theirs);
      state = next_state(state, found_inf, law);
      const bool same =
          state.scale == expected.scale && state.good_steps == expected.growth_tracker;
      REQUIRE_MESSAGE(
          same, course::text("series ", series, ", step ", step, ": you are at scale ", state.scale,
                             " and count ", state.good_steps, ", the library at ", expected.scale,
                             " and ", expected.growth_tracker));
    }
  }
}
