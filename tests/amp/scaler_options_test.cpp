// What GradScaler can do beyond torch's: hysteresis, bad losses, statistics, warnings, states.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <limits>
#include <set>
#include <string>

#include "halftape/tests/support/tracing_backend.h"
#include "halftape/tests/support/warnings.h"

using namespace halftape;
using amp::GradScaler;
using amp::GradScalerOptions;
using testing::Warnings;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Fixture {
  Tensor a = ones({3}, requires_grad()), b = ones({2, 2}, requires_grad()),
         c = ones({5}, requires_grad());
  optim::SGD optimizer{
      std::vector<optim::OptimizerParamGroup>{optim::OptimizerParamGroup(std::vector<Tensor>{a, b}),
                                              optim::OptimizerParamGroup(std::vector<Tensor>{c})},
      optim::SGDOptions(0.125)};
  GradScaler scaler;
  explicit Fixture(GradScalerOptions o = {.init_scale = 64, .growth_interval = 1000}) : scaler(o) {}

  Tensor loss() const { return a.sum() + b.sum() + c.sum(); }
  amp::StepResult step(bool bad = false) { return step(loss(), bad); }
  amp::StepResult step(const Tensor& l, bool bad) {
    optimizer.zero_grad();
    scaler.scale(l).backward();
    if (bad) c.grad().fill_(kInf);
    const auto result = scaler.step(optimizer);
    scaler.update();
    return result;
  }
};

}  // namespace

TEST_CASE("both hystereses hold on the device") {
  for (const auto refill : {Hysteresis::RefilledByCleanStep, Hysteresis::RefilledByGrowth}) {
    Fixture f({.init_scale = 64, .growth_interval = 4, .hysteresis = 2, .refill = refill});
    ScaleLaw law{.growth_interval = 4, .hysteresis = 2, .refill = refill};
    ScaleState expected{64};
    for (const bool bad : {true, false, true, true, false, false, true, false, false, false, false,
                           true, false, true, true}) {
      CHECK(f.step(bad).found_inf() == bad);
      expected = next(expected, bad, law);
      CHECK(f.scaler.get_scale() == expected.scale);
      CHECK(f.scaler.get_growth_tracker() == expected.growth_tracker);
      CHECK(f.scaler.state_dict().at("_overflows") == expected.overflows);
    }
    CHECK(expected.scale < 64);
  }
}

TEST_CASE("a loss that is not finite skips the step, leaves the scale, and is reported as such") {
  for (const double bad : {kInf, -kInf, kNaN}) {
    Fixture f;
    f.step();
    const Tensor before = f.a.detach().clone();
    const auto result = f.step(f.loss() * bad, false);
    CHECK(result.found_inf());
    CHECK(result.bad_loss());
    CHECK_FALSE(result.applied());
    CHECK(f.a.equal(before));
    CHECK(f.scaler.get_scale() == 64);
    CHECK(f.scaler.get_growth_tracker() == 1);
    CHECK(f.scaler.stats().bad_losses == 1);
    const auto good = f.step();
    CHECK(good.applied());
    CHECK_FALSE(good.bad_loss());
    CHECK(result.bad_loss());  // a result keeps its own verdict
    // An overflow without a bad loss is the scale's affair.
    const auto overflow = f.step(true);
    CHECK_FALSE(overflow.bad_loss());
    CHECK(f.scaler.get_scale() == 32);
  }
}

TEST_CASE("a bad loss skips even where the gradients are finite, and one of several is enough") {
  Fixture f;
  f.optimizer.zero_grad();
  const Tensor infinite = f.a.sum() + full({}, kInf);
  for (const Tensor& l : f.scaler.scale(std::vector<Tensor>{f.b.sum(), infinite, f.c.sum()}))
    l.backward();
  CHECK(f.scaler.step(f.optimizer).bad_loss());
  f.scaler.update();
  CHECK(f.a.equal(ones({3})));
  CHECK(f.scaler.get_scale() == 64);
  CHECK_FALSE(f.scaler.stats().nonfinite);
}

TEST_CASE("statistics count updates and name the first gradient that was not finite") {
  Fixture f({.init_scale = 64, .growth_interval = 2, .max_scale = 128});
  CHECK(f.scaler.stats().steps == 0);
  f.step(), f.step();                            // grows to 128
  f.step(), f.step();                            // bounded: no growth
  f.step(true), f.step(f.loss() * kNaN, false);  // backs off once
  const auto s = f.scaler.stats();
  CHECK(s.steps == 6);
  CHECK(s.skips == 2);
  CHECK(s.skips_in_row == 2);
  CHECK(s.bad_losses == 1);
  CHECK(s.growths == 1);
  CHECK(s.backoffs == 1);
  f.step();
  CHECK(f.scaler.stats().skips_in_row == 0);

  for (const size_t index : {size_t{0}, size_t{1}, size_t{2}}) {
    f.optimizer.zero_grad();
    f.scaler.scale(f.loss()).backward();
    const auto parameters = f.optimizer.parameters();
    parameters[2].grad().fill_(kNaN);
    parameters[index].grad().fill_(kInf);
    f.scaler.step(f.optimizer);
    f.scaler.update();
    const auto first = f.scaler.stats().nonfinite;
    REQUIRE(first);
    CHECK(first->optimizer == 0);
    CHECK(first->index == index);
    CHECK(first->group == (index == 2 ? 1 : 0));
    CHECK(first->shape == parameters[index].sizes());
  }
}

TEST_CASE("the parameter is named by its place also where others have no gradient") {
  Fixture f;
  const Tensor d = ones({7}, requires_grad());
  optim::SGD other({d}, optim::SGDOptions(1.0));
  f.optimizer.zero_grad();
  f.scaler.scale(f.c.sum() + d.sum()).backward();  // a and b have none
  f.scaler.step(f.optimizer);
  d.grad().fill_(kNaN);
  f.scaler.step(other);
  f.scaler.update();
  auto first = f.scaler.stats().nonfinite;
  REQUIRE(first);
  CHECK(first->optimizer == 1);
  CHECK(first->index == 0);
  CHECK(first->shape == Shape{7});
  f.optimizer.zero_grad(), other.zero_grad();
  f.scaler.scale(f.c.sum()).backward();
  f.c.grad().fill_(kInf);
  f.scaler.step(f.optimizer);
  f.scaler.update();
  first = f.scaler.stats().nonfinite;
  REQUIRE(first);
  CHECK(first->optimizer == 0);
  CHECK(first->index == 2);
  CHECK(first->group == 1);
}

TEST_CASE("a parameter that joined after the first step is named by its own place") {
  Fixture f;
  f.step();
  const Tensor d = ones({7}, requires_grad());
  f.optimizer.add_param_group({std::vector<Tensor>{d}});
  f.optimizer.zero_grad();
  f.scaler.scale(f.loss() + d.sum()).backward();
  d.grad().fill_(kInf);
  f.scaler.step(f.optimizer);
  f.scaler.update();
  const auto named = f.scaler.stats().nonfinite;
  REQUIRE(named);
  CHECK(named->index == 3);
  CHECK(named->group == 2);
  CHECK(named->shape == Shape{7});
}

TEST_CASE("the tenth skip in a row is warned of, once, without a read") {
  Warnings warnings;
  Fixture f;
  testing::TracingBackend trace;
  for (int i = 0; i < 9; ++i) f.step(true);
  CHECK(warnings.seen.empty());
  f.step(true);
  backend(get_default_device()).synchronize();  // a GPU says it to the next call that comes by
  REQUIRE(warnings.seen.size() == 1);
  CHECK(warnings.seen[0].find("10 steps in a row") != std::string::npos);
  CHECK(warnings.seen[0].find("scaler.stats()") != std::string::npos);
  for (int i = 0; i < 15; ++i) f.step(true);
  CHECK(warnings.seen.size() == 1);
  f.step();
  for (int i = 0; i < 10; ++i) f.step(f.loss() * kNaN, false);
  backend(get_default_device()).synchronize();
  REQUIRE(warnings.seen.size() == 2);
  CHECK(warnings.seen[1].find("the loss itself") != std::string::npos);
  CHECK(trace.count("read") == 0);
}

TEST_CASE("throw_after_skips throws at exactly that many in a row, and waits as seldom as it can") {
  for (const int healthy : {0, 1, 2, 3, 4, 5, 7, 12}) {
    CAPTURE(healthy);
    const GradScalerOptions options{
        .init_scale = 64, .warn_after_skips = 0, .throw_after_skips = 4};
    Fixture f(options), resumed(options);
    testing::TracingBackend trace;
    for (int i = 0; i < healthy; ++i) f.step();
    CHECK(trace.count("read") == healthy / 4);
    f.step(true), f.step(true), f.step(true), f.step();  // three are not four
    for (int i = 0; i < 3; ++i) CHECK_NOTHROW(f.step(true));
    CHECK_THROWS_WITH_AS(f.step(true), doctest::Contains("4 steps in a row"), Error);
    CHECK_THROWS_AS(f.step(true), Error);
    f.step();
    for (int i = 0; i < 3; ++i) CHECK_NOTHROW(f.step(true));
    CHECK_THROWS_WITH_AS(f.step(true), doctest::Contains("stats().nonfinite"), Error);
    f.step();
    for (int i = 0; i < 3; ++i) CHECK_NOTHROW(f.step(f.loss() * kNaN, false));
    CHECK_THROWS_WITH_AS(f.step(f.loss() * kNaN, false), doctest::Contains("the loss itself"),
                         Error);
    f.step();
    for (int i = 0; i < 3; ++i) f.step(true);
    resumed.scaler.load_state_dict(f.scaler.state_dict());
    CHECK_THROWS_WITH_AS(resumed.step(true), doctest::Contains("4 steps in a row"), Error);
  }
}

TEST_CASE("options that torch lacks are checked, too") {
  CHECK_THROWS_WITH_AS(GradScaler({.hysteresis = 0}), doctest::Contains("hysteresis 0"), Error);
  CHECK_THROWS_WITH_AS(GradScaler({.init_scale = 8, .min_scale = 16}),
                       doctest::Contains("scale 8 lies outside of [16, "), Error);
  CHECK_THROWS_WITH_AS(GradScaler({.max_scale = 1024}), doctest::Contains("lies outside"), Error);
  CHECK_THROWS_WITH_AS(GradScaler({.max_scale = 1e39}), doctest::Contains("max_scale"), Error);
  CHECK_THROWS_WITH_AS(GradScaler({.warn_after_skips = -1}), doctest::Contains("warn_after_skips"),
                       Error);
  CHECK_THROWS_WITH_AS(GradScaler({.growth_interval = int64_t{1} << 31}),
                       doctest::Contains("fixed()"), Error);
  GradScaler scaler({.init_scale = 16, .min_scale = 4, .max_scale = 64});
  CHECK_THROWS_AS(scaler.update(128.0), Error);
  scaler.scale(full({}, 1.0));
  CHECK_THROWS_AS(scaler.update(2.0), Error);
  CHECK(scaler.get_scale() == 16);
  scaler.update(full({}, 1e6));
  CHECK(scaler.get_scale() == 64);
}

TEST_CASE("a state holds bounds, hysteresis and counts, and torch's five numbers load as well") {
  Fixture f({.init_scale = 64,
             .growth_interval = 5,
             .min_scale = 2,
             .max_scale = 256,
             .hysteresis = 3,
             .refill = Hysteresis::RefilledByGrowth});
  f.step(true), f.step(), f.step(true), f.step();
  const auto saved = f.scaler.state_dict();
  for (const bool live : {false, true}) {
    Fixture g;
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
  Fixture g({.init_scale = 64, .max_scale = 1024, .hysteresis = 2});
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
  Fixture f({.init_scale = 64, .max_scale = 1024});
  f.step(true), f.step();
  const auto sound = f.scaler.state_dict();
  REQUIRE(sound.size() == 16);
  Fixture g({.init_scale = 16});
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

TEST_CASE("a schedule moves with the steps that were applied, and with no other") {
  Fixture f;
  int moved = 0;
  for (const bool bad : {false, true, false, true, true, false})
    CHECK(amp::step_if_applied(f.step(bad), [&] { ++moved; }) == !bad);
  CHECK(moved == 3);
  f.scaler.scale(full({}, 1.0));
  f.optimizer.zero_grad();
  CHECK_FALSE(amp::step_if_applied(f.scaler.step(f.optimizer), [&] { ++moved; }));
  CHECK(moved == 3);
}

TEST_CASE("a step's result speaks of the losses before its check, not of later ones") {
  for (const bool unscale_first : {false, true}) {
    Fixture f;
    const Tensor other = ones({1}, requires_grad());
    optim::SGD second({other}, optim::SGDOptions(1.0));
    f.scaler.scale(f.loss()).backward();
    amp::StepResult early;
    if (unscale_first)
      f.scaler.unscale_(f.optimizer);
    else
      early = f.scaler.step(f.optimizer);
    f.scaler.scale(other.sum() * kInf).backward();
    if (unscale_first) early = f.scaler.step(f.optimizer);
    const amp::StepResult late = f.scaler.step(second);
    f.scaler.update();
    CHECK(early.applied());
    CHECK_FALSE(early.bad_loss());
    CHECK(late.bad_loss());
    CHECK_FALSE(late.applied());
    CHECK(f.scaler.get_scale() == 64);
  }
}

TEST_CASE("a tensor given to update() cannot spoil the scale, whatever region it is given in") {
  GradScaler scaler({.init_scale = 64});
  scaler.scale(ones({}));
  for (const double senseless : {kNaN, 0.0, -1.0, -kInf, 1e-60}) {
    scaler.update(full({1}, senseless, kFloat64));
    CHECK(scaler.get_scale() == 64);
  }
  const amp::autocast region(kCPU, kFloat16, amp::Policy().set_all(Cast::Lower));
  scaler.update(full({1}, 0x1p20));
  CHECK(scaler.get_scale() == 0x1p20);
  scaler.update(full({1}, kInf));
  CHECK(scaler.get_scale() == std::numeric_limits<float>::max());
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

TEST_CASE("a scaler that first meets a loss in InferenceMode trains afterwards") {
  Fixture f;
  {
    const InferenceMode inference;
    f.scaler.scale(ones({2}));
  }
  CHECK(f.step().applied());
  CHECK_NOTHROW(f.scaler.update(8.0));
  CHECK(f.step(true).found_inf());
  CHECK(f.scaler.get_scale() == 4);
}

TEST_CASE("a step that was refused leaves update() nothing to judge") {
  const Tensor p = ones({2}, TensorOptions(kFloat16).requires_grad(true));
  optim::SGD optimizer({p}, optim::SGDOptions(1.0));
  GradScaler scaler({.init_scale = 4});
  scaler.scale(p.sum()).backward();
  CHECK_THROWS_AS(scaler.step(optimizer), Error);
  CHECK_THROWS_WITH_AS(scaler.update(), doctest::Contains("nothing was checked"), Error);
}

TEST_CASE("a state is torch's or ours: of what torch lacks all is there, or nothing") {
  Fixture f({.init_scale = 64, .min_scale = 2, .hysteresis = 2});
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

TEST_CASE("a loss that has no gradient is refused with its dtype and the way out") {
  GradScaler scaler;
  CHECK_THROWS_WITH_AS(scaler.scale(ones({2, 3}, kInt64)),
                       doctest::Contains("GradScaler::scale: the loss, [2, 3], is int64"), Error);
  CHECK_THROWS_WITH_AS(scaler.scale(ones({}, kBool)), doctest::Contains(".to(kFloat32)"), Error);
  CHECK_THROWS_WITH_AS(scaler.scale(Tensor()), doctest::Contains("undefined"), Error);
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
