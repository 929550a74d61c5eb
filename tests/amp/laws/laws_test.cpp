// The laws of loss scaling: what all share, what each does in its own way, and what that costs.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>

#include "halftape/tests/support/nonfinite.h"
#include "halftape/tests/support/vectors.h"

using namespace halftape;
namespace laws = halftape::amp::laws;
using laws::Constants;
using laws::Law;
using laws::State;
using testing::kInf;

namespace {

constexpr double kFloatMax = std::numeric_limits<float>::max();

Law changed(std::string_view name, double init, int64_t interval) {
  Law law = laws::find(name);
  law.constants.init_scale = init;
  law.constants.growth_interval = interval;
  return law;
}

/// "..x" as verdicts: good, good, overflow.
std::vector<bool> verdicts(const std::string& events) {
  std::vector<bool> out;
  for (const char e : events) out.push_back(e == 'x');
  return out;
}

/// log2 of the scale that each step leaves for the next.
std::vector<double> left_behind(const Law& law, const std::string& events) {
  const laws::Replay r = laws::replay(law, verdicts(events));
  std::vector<double> out;
  for (size_t i = 1; i < r.scale.size(); ++i) out.push_back(std::log2(r.scale[i]));
  out.push_back(std::log2(r.end.scale));
  return out;
}

/// f(state before, overflow, state after) on random verdicts, from rare overflows to frequent ones;
/// begin() before every run.
template <class F>
void on_random_verdicts(
    const Law& law, const F& f, const std::function<void()>& begin = [] {}) {
  std::mt19937 random(20170410);
  for (int run = 0; run < 60; ++run) {
    std::bernoulli_distribution overflows(0.02 + 0.01 * run);
    begin();
    State s = law.start();
    for (int step = 0; step < 400; ++step) {
      const bool bad = overflows(random);
      const State after = law.next(s, {.overflow = bad}, law.constants);
      f(s, bad, after);
      s = after;
    }
  }
}

}  // namespace

TEST_CASE("every law keeps its scale between its bounds, and moves it by its two factors") {
  for (const Law& law : laws::all()) {
    CAPTURE(law.name);
    const Law quick = changed(law.name, 64, 4);
    const Constants& c = quick.constants;
    bool grew = false, fell = false;
    on_random_verdicts(quick, [&](const State& s, bool, const State& after) {
      for (const double scale : {after.scale, after.decided}) {
        REQUIRE(std::isfinite(scale));
        REQUIRE(scale >= c.min_scale);
        REQUIRE(scale <= c.max_scale);
      }
      const double ratio = after.decided / s.decided;
      grew = grew || ratio == c.growth_factor;
      fell = fell || ratio == c.backoff_factor;
      const bool at_bound = after.decided == c.min_scale || after.decided == c.max_scale;
      const bool moves = ratio == 1 || ratio == c.growth_factor || ratio == c.backoff_factor;
      REQUIRE((moves || at_bound));
    });
    CHECK(grew);
    CHECK(fell);
  }
}

TEST_CASE("no law grows on an overflow or falls on a good step") {
  for (const Law& law : laws::all()) {
    CAPTURE(law.name);
    on_random_verdicts(changed(law.name, 64, 4), [&](const State& s, bool bad, const State& after) {
      if (bad)
        REQUIRE(after.decided <= s.decided);
      else
        REQUIRE(after.decided >= s.decided);
    });
  }
}

TEST_CASE("every law falls within one overflow more than its hysteresis, from any state") {
  for (const Law& law : laws::all()) {
    CAPTURE(law.name);
    const Law quick = changed(law.name, 0x1p20, 4);
    on_random_verdicts(quick, [&](const State& s, bool, const State&) {
      State after = s;
      for (int64_t i = 0; i <= quick.constants.hysteresis; ++i)
        after = quick.next(after, {.overflow = true}, quick.constants);
      REQUIRE((after.decided < s.decided || s.decided == quick.constants.min_scale));
    });
  }
}

TEST_CASE("every law grows within two good steps more than its interval, and never before it") {
  for (const Law& law : laws::all()) {
    CAPTURE(law.name);
    const Law quick = changed(law.name, 64, 4);
    int64_t good = 0;  // since the last overflow or growth
    const auto check = [&](const State& s, bool bad, const State& after) {
      good = bad ? 0 : good + 1;
      if (after.decided > s.decided) {
        REQUIRE(good >= quick.constants.growth_interval);
        good = 0;
      }
      State later = after;
      for (int i = 0; i < 6; ++i) later = quick.next(later, {}, quick.constants);
      const bool at_cap = after.decided * quick.constants.growth_factor > quick.constants.max_scale;
      REQUIRE((later.decided > after.decided || at_cap || after.decided == 0));  // 0 stays 0
    };
    on_random_verdicts(quick, check, [&] { good = 0; });
  }
}

TEST_CASE("each law follows its own table, growth interval 3, from 2^4") {
  const struct {
    const char *law, *events;
    std::vector<double> log2_scale;  // after each event
  } rows[] = {
      {"pytorch", "...x....", {4, 4, 5, 4, 4, 4, 5, 5}},
      {"pytorch", "xxxxxx", {3, 2, 1, 0, -1, -2}},
      {"apex", "...x....", {4, 4, 5, 4, 4, 4, 5, 5}},
      // Overflows 1 and 2 in a row: the second counts. Alternating ones never do.
      {"apex_kernel", "...xx.x.x...", {4, 4, 5, 5, 4, 4, 4, 4, 4, 4, 4, 5}},
      {"apex_kernel", "xxxx", {4, 3, 2, 1}},
      // Growth after 4 good steps, then after 3 more; patience comes back with growth alone.
      {"deepspeed", "....x", {4, 4, 4, 5, 5}},
      {"deepspeed", ".......xxx", {4, 4, 4, 5, 5, 5, 6, 6, 5, 4}},
      {"deepspeed", "x.x.x....x.x", {4, 4, 3, 3, 2, 2, 2, 2, 3, 3, 3, 2}},
      {"deepspeed", "xxxxxxx", {4, 3, 2, 1, 0, 0, 0}},
      {"deepspeed_consecutive", "x.x.x.xx", {4, 4, 4, 4, 4, 4, 4, 3}},
      {"deepspeed_consecutive", ".......", {4, 4, 4, 5, 5, 5, 6}},
      {"megatron", "x.x.x...xx", {4, 4, 3, 3, 2, 2, 2, 3, 3, 2}},
      {"megatron", "xxxxxxx", {4, 3, 2, 1, 0, 0, 0}},
      // Growth after 4 good steps, every time.
      {"flax", "........x", {4, 4, 4, 5, 5, 5, 5, 6, 5}},
      {"flax", "...x....", {4, 4, 4, 3, 3, 3, 3, 4}},
      {"jmp", "...x...", {4, 4, 5, 4, 4, 4, 5}},
      {"jmp", "xxxxxx", {3, 2, 1, 0, 0, 0}},
      {"keras", "...x...", {4, 4, 5, 4, 4, 4, 5}},
      {"keras", "xxxxxx", {3, 2, 1, 0, -1, -2}},
      // 5 is decided after three steps and used one later; two overflows, two halvings.
      {"roundpipe", "....xx..", {4, 4, 4, 5, 5, 4, 3, 3}},
      {"roundpipe_epochs", "....xx..", {4, 4, 4, 5, 5, 4, 4, 4}},
      {"headroom", "...x....", {4, 4, 5, 4, 4, 4, 5, 5}},
  };
  for (const auto& row : rows) {
    CAPTURE(row.law);
    CAPTURE(row.events);
    CHECK(left_behind(changed(row.law, 16, 3), row.events) == row.log2_scale);
  }
  for (const Law& law : laws::all()) {
    CAPTURE(law.name);
    CHECK(std::any_of(std::begin(rows), std::end(rows),
                      [&](const auto& row) { return row.law == law.name; }));
  }
}

TEST_CASE(
    "the law of headroom grows when the last step says that it fits, however long it waited") {
  const Law law = changed("headroom", 16, 3);
  std::vector<double> limits(10, 31.0);
  limits.push_back(32);
  limits.insert(limits.end(), 5, 33.0);
  const laws::Replay r = laws::replay_limits(law, limits);
  for (size_t i = 0; i < limits.size(); ++i) {
    CHECK(r.scale[i] == (i <= 10 ? 16 : 32));
    CHECK(!r.overflow[i]);
  }
}

TEST_CASE("at the end of the numbers each law does what its system does") {
  const std::vector<bool> good(1200, false), bad(1200, true);
  const struct {
    const char* law;
    double top, top_after_overflows, bottom;
  } rows[] = {
      {"pytorch", 0x1p127, 0, 0},
      {"apex", 0x1p24, 0, 0},
      {"apex_kernel", 0x1p127, 0, 0},
      {"deepspeed", kInf, kInf, 1},
      {"deepspeed_consecutive", kInf, kInf, 1},
      {"megatron", kInf, kInf, 1},
      {"flax", kFloatMax, std::numeric_limits<float>::min(), std::numeric_limits<float>::min()},
      {"jmp", 0x1p127, 1, 1},
      {"keras", kInf, kInf, 0},
      {"roundpipe", 0x1p127, 0, 0},
  };
  for (const auto& row : rows) {
    CAPTURE(row.law);
    const Law law = changed(row.law, 1, 1);
    State s = laws::replay(law, good).end;
    CHECK(s.scale == row.top);
    for (int i = 0; i < 1200; ++i) s = law.next(s, {.overflow = true}, law.constants);
    CHECK(s.scale == row.top_after_overflows);
    CHECK(laws::replay(law, bad).end.scale == row.bottom);
  }
}

TEST_CASE("the defaults are those of the systems") {
  const auto c = [](const char* name) { return laws::find(name).constants; };
  for (const char* name : {"pytorch", "apex", "roundpipe", "flax"}) {
    CAPTURE(name);
    CHECK(c(name).init_scale == 65536);
    CHECK(c(name).growth_interval == 2000);
  }
  for (const char* name : {"jmp", "keras"}) {
    CAPTURE(name);
    CHECK(c(name).init_scale == 32768);
    CHECK(c(name).growth_interval == 2000);
  }
  CHECK(c("deepspeed").init_scale == 65536);
  CHECK(c("megatron").init_scale == 0x1p32);
  for (const char* name : {"deepspeed", "deepspeed_consecutive", "megatron"}) {
    CAPTURE(name);
    CHECK(c(name).growth_interval == 1000);
    CHECK(c(name).hysteresis == 2);
    CHECK(c(name).min_scale == 1);
  }
  for (const Law& law : laws::all()) {
    CAPTURE(law.name);
    CHECK(law.constants.growth_factor == 2);
    CHECK(law.constants.backoff_factor == 0.5);
    CHECK(!law.source.empty());
    CHECK(law.start().scale == law.constants.init_scale);
  }
}

TEST_CASE("the law of PyTorch is PyTorch's, run by run") {
  const testing::Vectors torch("grad_scaler.txt");
  for (const std::string name :
       {"usual", "every_step", "odd_factors", "growth_to_the_limit", "far_below_one",
        "defaults_never_grow_early", "overflow_when_growth_is_due"}) {
    CAPTURE(name);
    const auto& given = torch[name + "/options"];
    Law law = changed("pytorch", given.at(0), static_cast<int64_t>(given.at(3)));
    law.constants.growth_factor = given.at(1);
    law.constants.backoff_factor = given.at(2);
    const auto &bad = torch[name + "/found_inf"], &scales = torch[name + "/scale"],
               &trackers = torch[name + "/growth_tracker"];
    State s = law.start();
    for (size_t t = 0; t < bad.size(); ++t) {
      CAPTURE(t);
      s = law.next(s, {.overflow = bad[t] != 0}, law.constants);
      CHECK(s.scale == scales[t]);
      CHECK(static_cast<double>(s.good) == trackers[t]);
    }
  }
}

TEST_CASE("under one fixed limit a late verdict costs half a binade, and a fresh one nothing") {
  constexpr size_t kInterval = 2000, kDropped = 10 * kInterval, kSteps = 60000;
  const std::vector<double> limits(kDropped + kSteps, 64.0);
  const struct {
    const char* law;
    int64_t skips;  // in 60,000 steps, after ten intervals
    double mean_log2_scale, best_share;
    int64_t cold_skips;  // on the way down from 2^16
    double landing;
  } rows[] = {
      {"pytorch", 30, 6.000, 1.000, 10, 64},
      {"roundpipe", 30, 5.501, 0.500, 11, 32},
      {"roundpipe_epochs", 60, 6.001, 0.999, 20, 64},
      {"headroom", 0, 6.000, 1.000, 10, 64},
  };
  for (const auto& row : rows) {
    CAPTURE(row.law);
    const laws::Replay r = laws::replay_limits(changed(row.law, 65536, kInterval), limits);
    const laws::Summary s = laws::summarise(r, limits, kDropped);
    CHECK(s.steps == kSteps);
    CHECK(s.skips == row.skips);
    CHECK(std::abs(s.mean_log2_scale - row.mean_log2_scale) < 0.001);
    CHECK(std::abs(s.best_share - row.best_share) < 0.001);
    CHECK(std::count(r.overflow.begin(), r.overflow.begin() + 100, true) == row.cold_skips);
    CHECK(r.scale[100] == row.landing);
  }
}

TEST_CASE("two hystereses go by one name: on alternating overflows one never falls, one always") {
  std::string events;
  for (int i = 0; i < 10; ++i) events += "x.";
  for (const char* name : {"apex_kernel", "deepspeed_consecutive"}) {
    CAPTURE(name);
    CHECK(laws::replay(changed(name, 0x1p16, 1000), verdicts(events)).end.scale == 0x1p16);
  }
  for (const char* name : {"deepspeed", "megatron"}) {
    CAPTURE(name);
    CHECK(laws::replay(changed(name, 0x1p16, 1000), verdicts(events)).end.scale == 0x1p7);
  }
}

TEST_CASE("limits decide like verdicts: a limit of 0 stops every step, one of infinity none") {
  const Law law = changed("pytorch", 16, 3);
  const std::vector<double> limits = {kInf, 16, 15, kInf, 0, 4};
  const laws::Replay r = laws::replay_limits(law, limits);
  CHECK(r.overflow == verdicts("..x.x."));
  CHECK(r.scale == laws::replay(law, r.overflow).scale);
  const laws::Summary s = laws::summarise(r, limits);
  CHECK(s.steps == 6);
  CHECK(s.skips == 2);
  CHECK(s.mean_log2_scale == (4 + 4 + 4 + 3 + 3 + 2) / 6.0);
  CHECK(s.best_share == 2 / 6.0);  // the steps under the limits 16 and 4
}

TEST_CASE("a scale that has grown to infinity overflows, also under a limit of infinity") {
  const std::vector<double> limits(4, kInf);
  const laws::Replay r = laws::replay_limits(changed("keras", 0x1p126, 1), limits);
  CHECK(r.scale == std::vector<double>{0x1p126, 0x1p127, kInf, kInf});
  CHECK(r.overflow == verdicts("..xx"));
}

TEST_CASE("wrong names and limits are refused, and named") {
  CHECK_THROWS_WITH_AS(laws::find("torch"), doctest::Contains("\"torch\"; there are pytorch, apex"),
                       Error);
  const Law& law = laws::find("jmp");
  const double negative[] = {1.0, -2.0}, nan[] = {std::nan("")};
  CHECK_THROWS_WITH_AS(laws::replay_limits(law, negative), doctest::Contains("-2 of step 1"),
                       Error);
  CHECK_THROWS_AS(laws::replay_limits(law, nan), Error);
  for (Law never : laws::all()) {
    never.constants.growth_interval = 0;
    CHECK_THROWS_WITH_AS(laws::replay(never, {false, false}),
                         doctest::Contains("growth_interval 0 of"), Error);
  }
  CHECK_THROWS_WITH_AS(laws::summarise(laws::replay(law, {true}), negative),
                       doctest::Contains("2 limits and 1 steps"), Error);
}
