// What keeps a loop with AsyncGradScaler from being silently wrong: marked gradients, bad losses,
// skips in a row.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>

using namespace halftape;
using amp::AsyncGradScaler;
using optim::AsyncOptimizer;

namespace {

struct Fixture {
  explicit Fixture(amp::GradScalerOptions o = {.init_scale = 4}) : scaler(o) {}
  Tensor w = ones({2}, requires_grad());
  AsyncOptimizer optimizer{
      std::make_unique<optim::SGD>(std::vector<Tensor>{w}, optim::SGDOptions(0.25))};
  AsyncGradScaler scaler;
  void backward() { scaler.scale(w.sum()).backward(); }
  optim::AsyncStep step(double factor = 1) {
    scaler.scale(w.sum() * factor).backward();
    return scaler.step(optimizer);
  }
};

}  // namespace

TEST_CASE(
    "gradients of an asynchronous scaler are marked, and refused where they are not divided") {
  Fixture f;
  f.backward();
  CHECK_THROWS_WITH_AS(f.optimizer.step(), doctest::Contains("still multiplied"), Error);
  CHECK_THROWS_WITH_AS(nn::utils::clip_grad_norm_({f.w}, 1), doctest::Contains("max_norm"), Error);
  f.scaler.step(f.optimizer, {.is_async = false});
  CHECK(f.w.equal(full({2}, 0.75)));
}

TEST_CASE("an asynchronous step refuses sums of gradients of different scales") {
  Fixture f;
  const auto refused = [&](const char* reason) {
    const auto because = doctest::Contains(reason);
    CHECK_THROWS_WITH_AS(f.scaler.step(f.optimizer), because, Error);
    CHECK_THROWS_WITH_AS(f.optimizer.step(), because, Error);
    CHECK_THROWS_WITH_AS(f.optimizer.step({.scale = 4}), because, Error);
    CHECK(f.optimizer.steps() == 0);
    f.optimizer.zero_grad();
  };
  f.backward();
  f.w.sum().backward();
  refused("scaler.scale(loss).backward() for every loss");
  f.backward();
  f.scaler.update(1024.0);
  f.backward();
  refused("two different loss scales");
  // A step takes its gradients with it: the next ones meet none that were divided already.
  f.backward();
  f.scaler.step(f.optimizer);
  f.backward();
  CHECK(f.w.grad().equal(full({2}, 1024.0)));
}

TEST_CASE("a step takes gradients of its own scale alone") {
  Fixture f;
  f.scaler.scale(ones({}));
  f.w.sum().backward();
  CHECK_THROWS_WITH_AS(f.scaler.step(f.optimizer), doctest::Contains("was not scaled"), Error);
  f.optimizer.zero_grad();
  f.backward();
  f.scaler.update(1024.0);
  f.scaler.scale(ones({}));
  CHECK_THROWS_WITH_AS(f.scaler.step(f.optimizer), doctest::Contains("scaled earlier"), Error);
  f.optimizer.zero_grad();
  f.backward();
  f.scaler.step(f.optimizer, {.is_async = false});
  CHECK(f.w.equal(full({2}, 0.75)));
}

TEST_CASE(
    "a loss that is not finite skips the asynchronous step, and the scale does not back off") {
  for (const auto delivery : {amp::ScaleDelivery::Prompt, amp::ScaleDelivery::Late}) {
    Fixture f;
    f.scaler = AsyncGradScaler({.init_scale = 4}, delivery);
    for (const double bad : {HUGE_VAL, std::nan("")}) {
      CHECK(f.step(bad).found_inf());
      f.scaler.update();
      CHECK(f.scaler.get_scale(true) == 4);
    }
    // Where the gradients are finite, too; and the one before it is not meant.
    const auto good = f.step();
    f.scaler.scale(full({}, HUGE_VAL));
    f.backward();
    CHECK(f.scaler.step(f.optimizer).found_inf());
    CHECK(good.applied());
    f.scaler.update();
    CHECK(f.scaler.get_scale(true) == 4);
    CHECK(f.scaler.state_dict().at("_bad_losses") == 3);
  }
}

TEST_CASE("asynchronous skips in a row are warned of and thrown at as asked") {
  std::vector<std::string> seen;
  const auto before = set_warning_handler([&](const std::string& m) { seen.push_back(m); });
  {
    Fixture f({.init_scale = 1024, .warn_after_skips = 2, .throw_after_skips = 3});
    auto skip = [&] {
      f.step(0x1p125);
      f.scaler.update({.is_async = false});
    };
    skip();
    CHECK(seen.empty());
    skip();
    REQUIRE(seen.size() == 1);
    CHECK(seen[0].find("2 steps in a row") != std::string::npos);
    CHECK_THROWS_WITH_AS(skip(), doctest::Contains("3 steps in a row"), Error);
    CHECK(f.scaler.get_scale(true) == 128);
    f.step();
    CHECK_NOTHROW(f.scaler.update({.is_async = false}));
    CHECK_NOTHROW(skip());
    CHECK(seen.size() == 1);
  }
  set_warning_handler(before);
}

TEST_CASE("a float16 gradient that is not clipped is divided in float32, and its master moves") {
  const Tensor p = ones({2}, TensorOptions(kFloat16).requires_grad(true)),
               tiny = full({2}, 0x1p-30);
  for (const bool clips : {false, true}) {
    auto inner = std::make_unique<optim::SGD>(
        std::vector<Tensor>{p}, optim::SGDOptions(0x1p10).weights(optim::Weights::Master));
    const optim::SGD& sgd = *inner;
    AsyncOptimizer optimizer(std::move(inner));
    AsyncGradScaler scaler({.init_scale = 65536, .allow_fp16_grads = true});
    scaler.scale((p.to(kFloat32) * tiny).sum()).backward();
    optim::AsyncStepOptions how{.is_async = false};
    if (clips) how.max_norm = 1;
    CHECK(scaler.step(optimizer, how).applied());
    const Tensor master(sgd.state_of(sgd.parameters()[0]).at("master"));
    CHECK(master.equal(full({2}, clips ? 1 : 1 - 0x1p-20)));
  }
}
