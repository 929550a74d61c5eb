// What GradScaler saves and loads: bounds, torch's five numbers and its own, and what is refused.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <limits>
#include <set>
#include <string>

#include "halftape/tests/support/nonfinite.h"
#include "halftape/tests/support/scaled_training.h"
#include "halftape/tests/support/warnings.h"

using namespace halftape;
using amp::GradScaler;
using amp::GradScalerOptions;
using testing::kNaN;
using testing::ScaledTraining;
using testing::Warnings;

TEST_CASE("a state holds bounds, hysteresis and counts, and torch's five numbers load as well") {
  ScaledTraining f({.init_scale = 64,
                    .growth_interval = 5,
                    .min_scale = 2,
                    .max_scale = 256,
                    .hysteresis = 3,
                    .refill = Hysteresis::RefilledByGrowth});
  f.step(true), f.step(), f.step(true), f.step();
  const auto saved = f.scaler.state_dict();
  for (const bool live : {false, true}) {
    ScaledTraining g;
    if (live) g.step();
    g.scaler.load_state_dict(saved);
    CHECK(g.scaler.state_dict() == saved);
    CHECK(g.scaler.stats().skips == 2);
    g.step(true);  // the third overflow since the last growth
    CHECK(g.scaler.get_scale() == 32);
    for (int i = 0; i < 40; ++i) g.step(true);
    CHECK(g.scaler.get_scale() == 2);
  }
  const GradScaler::StateDict five = {{"scale", 512},
                                      {"growth_factor", 4},
                                      {"backoff_factor", 0.25},
                                      {"growth_interval", 3},
                                      {"_growth_tracker", 2}};
  ScaledTraining g({.init_scale = 64, .max_scale = 1024, .hysteresis = 2});
  g.step(true);
  g.scaler.load_state_dict(five);
  CHECK(g.scaler.stats().steps == 0);
  CHECK(g.scaler.state_dict().at("hysteresis") == 2);
  g.step();
  CHECK(g.scaler.get_scale() == 1024);  // 4 · 512, bounded
}

TEST_CASE("the bounds of a saved state are taken as float32 numbers") {
  GradScaler scaler;
  auto saved = scaler.state_dict();
  saved["min_scale"] = 0.1;
  saved["max_scale"] = 1e30;
  scaler.load_state_dict(saved);
  CHECK(scaler.state_dict().at("min_scale") == double{0.1f});
  CHECK(scaler.state_dict().at("max_scale") == double{1e30f});
}

TEST_CASE("a state that is not sound in any one number is refused and changes nothing") {
  ScaledTraining f({.init_scale = 64, .max_scale = 1024});
  f.step(true), f.step();
  const auto sound = f.scaler.state_dict();
  REQUIRE(sound.size() == 16);
  ScaledTraining g({.init_scale = 16});
  g.step();
  const auto before = g.scaler.state_dict();
  for (const auto& entry : sound) {
    const std::string key = entry.first;
    CAPTURE(key);
    auto broken = sound;
    broken[key] = kNaN;
    CHECK_THROWS_AS(g.scaler.load_state_dict(broken), Error);
    broken[key] = -1;
    CHECK_THROWS_AS(g.scaler.load_state_dict(broken), Error);
    broken.erase(key);
    CHECK_THROWS_WITH_AS(g.scaler.load_state_dict(broken), doctest::Contains(key.c_str()), Error);
    CHECK(g.scaler.state_dict() == before);
  }
  for (const auto& entry : GradScaler::StateDict{{"scale", 2048},
                                                 {"growth_interval", 1.5},
                                                 {"_growth_tracker", 0x1p31 - 1},
                                                 {"max_scale", 1e39},
                                                 {"refilled_by_growth", 2}}) {
    CAPTURE(entry.first);
    auto broken = sound;
    broken[entry.first] = entry.second;
    CHECK_THROWS_AS(g.scaler.load_state_dict(broken), Error);
  }
  CHECK(g.scaler.state_dict() == before);
  CHECK_NOTHROW(g.scaler.load_state_dict(sound));
}

TEST_CASE("bounds that float32 rounds are kept as it rounds them, and a scale there loads again") {
  for (const double bound : {0.7, 1e-4, 0.1}) {  // down, down, up
    CAPTURE(bound);
    for (const bool lower : {false, true}) {
      GradScalerOptions o{.init_scale = bound};
      (lower ? o.min_scale : o.max_scale) = bound;
      GradScaler scaler(o), resumed(o);
      const auto saved = scaler.state_dict();
      CHECK(saved.at("scale") == saved.at(lower ? "min_scale" : "max_scale"));
      CHECK_NOTHROW(resumed.load_state_dict(saved));
    }
  }
}

TEST_CASE("a state is torch's or ours: of what torch lacks all is there, or nothing") {
  ScaledTraining f({.init_scale = 64, .min_scale = 2, .hysteresis = 2});
  f.step(true);
  const GradScaler::StateDict whole = f.scaler.state_dict();
  const std::set<std::string> torchs = {"scale", "growth_factor", "backoff_factor",
                                        "growth_interval", "_growth_tracker"};
  GradScaler::StateDict five;
  for (const auto& entry : whole) {
    const std::string& key = entry.first;
    CAPTURE(key);
    if (torchs.contains(key)) five.insert(entry);
    GradScaler::StateDict without = whole;
    without.erase(key);
    CHECK_THROWS_WITH_AS(f.scaler.load_state_dict(without),
                         doctest::Contains(("it has no \"" + key + "\"").c_str()), Error);
  }
  for (const auto& entry : whole) {
    const std::string& key = entry.first;
    CAPTURE(key);
    if (torchs.contains(key)) continue;
    GradScaler::StateDict with_one = five;
    with_one.insert(entry);
    CHECK_THROWS_WITH_AS(f.scaler.load_state_dict(with_one), doctest::Contains("it has no \""),
                         Error);
  }
  CHECK(f.scaler.state_dict() == whole);
  // What neither of them knows makes no difference.
  GradScaler lenient({.min_scale = 4, .hysteresis = 3});
  five["note"] = five["another"] = 1;
  lenient.load_state_dict(five);
  CHECK(lenient.state_dict().at("min_scale") == 4);
  CHECK(lenient.state_dict().at("hysteresis") == 3);
}

TEST_CASE("counts that contradict each other are refused") {
  const Warnings warnings;
  ScaledTraining f({.growth_interval = 1});
  for (const bool bad : {true, true, false}) f.step(bad);
  const GradScaler::StateDict good = f.scaler.state_dict();
  const GradScaler::StateDict wrong = {{"_steps", 1},      {"_skips", 4},   {"_skips_in_row", 3},
                                       {"_bad_losses", 3}, {"_growths", 4}, {"_backoffs", 4}};
  for (const auto& entry : wrong) {
    const std::string& key = entry.first;
    CAPTURE(key);
    GradScaler::StateDict changed = good;
    REQUIRE(changed.contains(key));
    changed[key] = entry.second;
    CHECK_THROWS_WITH_AS(f.scaler.load_state_dict(changed),
                         doctest::Contains("the counts contradict each other"), Error);
  }
  CHECK(f.scaler.state_dict() == good);
  f.scaler.load_state_dict(good);
}

TEST_CASE("after any number of skipped steps the scale comes back, and can be saved and loaded") {
  const Warnings warnings;
  const Tensor w = ones({1}).requires_grad_();
  optim::SGD optimizer({w}, optim::SGDOptions(0.1));
  GradScaler scaler({.growth_interval = 1});
  const auto step = [&](const Tensor& loss) {
    scaler.scale(loss).backward();
    scaler.step(optimizer);
    scaler.update();
    optimizer.zero_grad();
  };
  for (int i = 0; i < 200; ++i) step(sqrt(w * 0).sum());  // 0, whose gradient is not finite
  constexpr float least = std::numeric_limits<float>::min();
  CHECK(scaler.get_scale() == least);
  GradScaler again;
  again.load_state_dict(scaler.state_dict());
  CHECK(again.get_scale() == least);
  step((w * 0).sum());
  CHECK(scaler.get_scale() == 2 * least);
}
