// What keeps a loop with AsyncGradScaler from being silently wrong: marked gradients, bad losses,
// skips in a row.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <atomic>
#include <cmath>

using namespace halftape;
using amp::AsyncGradScaler;
using optim::AsyncOptimizer;

namespace {

struct AsyncTraining {
  explicit AsyncTraining(amp::GradScalerOptions o = {.init_scale = 4}) : scaler(o) {}
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
  AsyncTraining f;
  f.backward();
  CHECK_THROWS_WITH_AS(f.optimizer.step(), doctest::Contains("still multiplied"), Error);
  CHECK_THROWS_WITH_AS(nn::utils::clip_grad_norm_({f.w}, 1), doctest::Contains("max_norm"), Error);
  f.scaler.step(f.optimizer, {.is_async = false});
  CHECK(f.w.equal(full({2}, 0.75)));
}

TEST_CASE("an asynchronous step refuses sums of gradients of different scales") {
  AsyncTraining f;
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
  AsyncTraining f;
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
    AsyncTraining f;
    f.scaler = AsyncGradScaler({.init_scale = 4}, delivery);
    for (const double bad : {HUGE_VAL, std::nan("")}) {
      CHECK(f.step(bad).found_inf());
      f.scaler.update();
      CHECK(f.scaler.get_scale(true) == 4);
    }
    // Where the gradients are finite, too; and the one before it, which is checked after it, is not
    // meant.
    static std::atomic<bool> held;
    held = true;
    optim::set_meeting_hook([](optim::Meeting at) {
      if (at == optim::Meeting::Check) held.wait(true);
    });
    const auto good = f.step();
    f.scaler.scale(full({}, HUGE_VAL));
    held = false;
    held.notify_one();
    optim::set_meeting_hook(nullptr);
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
    AsyncTraining f({.init_scale = 1024, .warn_after_skips = 2, .throw_after_skips = 3});
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
    AsyncTraining silent({.warn_after_skips = 0});
    silent.step();
    silent.scaler.update({.is_async = false});
    CHECK(seen.size() == 1);
  }
  set_warning_handler(before);
}

TEST_CASE("the verdict on a step in flight does not reach a state that is loaded") {
  AsyncTraining f;
  const auto saved = f.scaler.state_dict();
  f.backward();
  f.w.grad().fill_(HUGE_VAL);
  f.scaler.step(f.optimizer);
  f.scaler.update();
  f.scaler.load_state_dict(saved);
  CHECK(f.scaler.state_dict() == saved);
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

TEST_CASE("the asynchronous scaler's statistics are the synchronous one's, step by step") {
  // What becomes of each loss: good, an overflow in one of three parameters, or a bad loss.
  enum { Good, First, Second, Third, BadLoss };
  const int script[] = {Good, Good, Second, First, Good,    BadLoss, BadLoss,
                        Good, Good, Good,   Third, BadLoss, Second,  Good};
  for (const auto delivery : {amp::ScaleDelivery::Prompt, amp::ScaleDelivery::Late}) {
    const amp::GradScalerOptions options{.init_scale = 64, .growth_interval = 3};
    std::vector<Tensor> plain, model;
    for (int64_t i = 0; i < 3; ++i)
      for (auto* all : {&plain, &model}) all->push_back(ones({i + 1}, requires_grad()));
    // Two groups, so that a place says more than a number.
    const auto groups = [](const std::vector<Tensor>& p) {
      return std::vector<optim::OptimizerParamGroup>{std::vector<Tensor>{p[0], p[1]},
                                                     std::vector<Tensor>{p[2]}};
    };
    optim::SGD sgd(groups(plain), optim::SGDOptions(0.0));
    AsyncOptimizer optimizer(std::make_unique<optim::SGD>(groups(model), optim::SGDOptions(0.0)));
    amp::GradScaler scaler(options);
    AsyncGradScaler async(options, delivery);
    const auto backward = [](auto& by, const std::vector<Tensor>& p, int what) {
      const Tensor loss = p[0].sum() + p[1].sum() + p[2].sum();
      by.scale(what == BadLoss ? loss * std::nan("") : loss).backward();
      if (what >= First && what <= Third)
        p[static_cast<size_t>(what - First)].grad().fill_(HUGE_VAL);
    };
    for (const int what : script) {
      CAPTURE(what);
      sgd.zero_grad();
      backward(scaler, plain, what);
      scaler.step(sgd);
      scaler.update();
      backward(async, model, what);
      const optim::AsyncStep step = async.step(optimizer);
      const bool overflow = what >= First && what <= Third;
      CHECK(step.nonfinite().has_value() == (what != Good));
      if (overflow) CHECK(*step.nonfinite() == static_cast<size_t>(what - First));
      async.update();
      const amp::ScalerStats expected = scaler.stats(), got = async.stats();
      CHECK(got.steps == expected.steps);
      CHECK(got.skips == expected.skips);
      CHECK(got.skips_in_row == expected.skips_in_row);
      CHECK(got.bad_losses == expected.bad_losses);
      CHECK(got.growths == expected.growths);
      CHECK(got.backoffs == expected.backoffs);
      REQUIRE(got.nonfinite.has_value() == expected.nonfinite.has_value());
      if (!got.nonfinite) continue;
      CHECK(got.nonfinite->optimizer == expected.nonfinite->optimizer);
      CHECK(got.nonfinite->index == expected.nonfinite->index);
      CHECK(got.nonfinite->group == expected.nonfinite->group);
      CHECK(got.nonfinite->shape == expected.nonfinite->shape);
    }
    CHECK(async.stats().skips == 7);
    CHECK(async.stats().bad_losses == 3);
    CHECK(async.stats().growths > 0);
    CHECK(async.stats().backoffs == 4);
  }
}

TEST_CASE("the gradient that was not finite is found among parameters without gradients") {
  const Tensor a = ones({2}, requires_grad()), b = ones({3}, requires_grad()),
               c = ones({4}, requires_grad());
  AsyncOptimizer optimizer(
      std::make_unique<optim::SGD>(std::vector<Tensor>{a, b, c}, optim::SGDOptions(1.0)));
  for (const bool clips : {false, true}) {
    c.mutable_grad() = full({4}, HUGE_VAL);
    optim::AsyncStepOptions how{.scale = 4};
    if (clips) how.max_norm = 1;
    CHECK(optimizer.step(how).nonfinite() == 2);
    // A bad verdict that was known before names nobody.
    b.mutable_grad() = ones({3});
    how.found_inf = full({}, 1, kFloat32, a.device());
    const optim::AsyncStep step = optimizer.step(how);
    CHECK(step.found_inf());
    CHECK_FALSE(step.nonfinite());
  }
  c.mutable_grad() = full({4}, HUGE_VAL);
  CHECK_FALSE(optimizer.step().nonfinite());  // without a scale nothing is checked
}

TEST_CASE("of two asynchronous optimizers the statistics name the one that overflowed first") {
  AsyncTraining one, two;
  for (const bool first_too : {false, true}) {
    one.scaler.scale(one.w.sum() + two.w.sum()).backward();
    two.w.grad().fill_(HUGE_VAL);
    if (first_too) one.w.grad().fill_(HUGE_VAL);
    one.scaler.step(one.optimizer);
    one.scaler.step(two.optimizer);
    one.scaler.update();
    REQUIRE(one.scaler.stats().nonfinite);
    CHECK(one.scaler.stats().nonfinite->optimizer == (first_too ? 0 : 1));
  }
  CHECK(one.scaler.stats().skips == 2);
}

TEST_CASE("a finding that the caller would fill in is refused, and so is one of another form") {
  AsyncTraining t;
  const Array one = full({}, 1, kFloat32).array(), two = full({2}, 1, kFloat32).array();
  t.scaler.scale(t.w.sum()).backward();
  CHECK_THROWS_WITH_AS(t.scaler.step(t.optimizer, {.found_inf = one}),
                       doctest::Contains("options.found_inf is the scaler's to fill in"), Error);
  CHECK_THROWS_WITH_AS(t.optimizer.step({.scale = t.scaler.get_scale(), .found_inf = two}),
                       doctest::Contains("found_inf float32 [2] must be one float32"), Error);
  CHECK(t.w.grad().defined());
  CHECK(t.optimizer.steps() == 0);
  CHECK(t.scaler.step(t.optimizer).applied());
}
