// What GradScaler can do beyond torch's: hysteresis, bad losses, statistics, warnings.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <limits>
#include <string>

#include "halftape/tests/support/nonfinite.h"
#include "halftape/tests/support/scaled_training.h"
#include "halftape/tests/support/tracing_backend.h"
#include "halftape/tests/support/warnings.h"

using namespace halftape;
using amp::GradScaler;
using amp::GradScalerOptions;
using testing::kInf, testing::kNaN;
using testing::ScaledTraining;
using testing::Warnings;

TEST_CASE("both hystereses hold on the device") {
  for (const auto refill : {Hysteresis::RefilledByCleanStep, Hysteresis::RefilledByGrowth}) {
    ScaledTraining f({.init_scale = 64, .growth_interval = 4, .hysteresis = 2, .refill = refill});
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
    ScaledTraining f;
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
  ScaledTraining f;
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
  ScaledTraining f({.init_scale = 64, .growth_interval = 2, .max_scale = 128});
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
  ScaledTraining f;
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
  ScaledTraining f;
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
  ScaledTraining f;
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
    ScaledTraining f(options), resumed(options);
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

TEST_CASE("a fixed scale is not made to move by halves") {
  GradScaler scaler(amp::GradScalerOptions::fixed(1024));
  scaler.set_growth_interval(5);
  scaler.set_growth_factor(1);
  CHECK_THROWS_WITH_AS(scaler.set_growth_factor(2), doctest::Contains("make another GradScaler"),
                       Error);
  CHECK_THROWS_WITH_AS(scaler.set_backoff_factor(0.5), doctest::Contains("make another GradScaler"),
                       Error);
}

TEST_CASE("a schedule moves with the steps that were applied, and with no other") {
  ScaledTraining f;
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
    ScaledTraining f;
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

TEST_CASE("a scaler that first meets a loss in InferenceMode trains afterwards") {
  ScaledTraining f;
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

TEST_CASE("a loss that has no gradient is refused with its dtype and the way out") {
  GradScaler scaler;
  CHECK_THROWS_WITH_AS(scaler.scale(ones({2, 3}, kInt64)),
                       doctest::Contains("GradScaler::scale: the loss, [2, 3], is int64"), Error);
  CHECK_THROWS_WITH_AS(scaler.scale(ones({}, kBool)), doctest::Contains(".to(kFloat32)"), Error);
  CHECK_THROWS_WITH_AS(scaler.scale(Tensor()), doctest::Contains("undefined"), Error);
}
