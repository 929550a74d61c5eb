// Defects that loss scalers in use have, or had: each once, phrased against ours. The last is one
// that ours could have.
// scripts/plant_faults plants them one by one and sees these cases fail.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>

#include "halftape/tests/support/nonfinite.h"

using namespace halftape;
using amp::GradScaler;
using testing::kInf, testing::kNaN;

namespace {

/// Parameters whose gradients are their own double, in one optimizer.
template <class Optimizer, class Options>
struct SquaresTraining {
  std::vector<Tensor> parameters;
  Optimizer optimizer;
  GradScaler scaler;
  SquaresTraining(size_t count, const Options& options, const amp::GradScalerOptions& o)
      : parameters(make(count)), optimizer(parameters, options), scaler(o) {}
  static std::vector<Tensor> make(size_t count) {
    std::vector<Tensor> all;
    for (size_t i = 0; i < count; ++i) all.push_back(full({3}, 1.0 + i, requires_grad()));
    return all;
  }
  Tensor loss() const {
    Tensor sum = zeros({});
    for (const Tensor& p : parameters) sum = sum + (p * p).sum();
    return sum;
  }
  void backward() {
    optimizer.zero_grad();
    scaler.scale(loss()).backward();
  }
  amp::StepResult step(bool bad = false) {
    backward();
    if (bad) parameters[0].grad().fill_(kInf);
    const auto result = scaler.step(optimizer);
    scaler.update();
    return result;
  }
};
using Sgd = SquaresTraining<optim::SGD, optim::SGDOptions>;
using Adam = SquaresTraining<optim::Adam, optim::AdamOptions>;

Sgd sgd(const amp::GradScalerOptions& o, size_t count = 1, double lr = 0) {
  return Sgd(count, optim::SGDOptions(lr), o);
}

}  // namespace

TEST_CASE("fault 1: growth counts good steps, and does not look at how large the scale is") {
  // Flashlight: 2000 clean steps from 4096 give 8096.
  Sgd t = sgd({.init_scale = 4096});
  for (int i = 0; i < 1999; ++i) t.step();
  CHECK(t.scaler.get_scale() == 4096);
  t.step();
  CHECK(t.scaler.get_scale() == 8192);
  CHECK(t.scaler.get_growth_tracker() == 0);
}

TEST_CASE("fault 2: a bad gradient does not stop the others from being unscaled") {
  // Flashlight, FairScale: those before it are unscaled, those after it are not.
  for (size_t bad = 0; bad < 3; ++bad) {
    Sgd t = sgd({.init_scale = 64}, 3);
    t.backward();
    t.parameters[bad].grad().fill_(kNaN);
    t.scaler.unscale_(t.optimizer);
    for (size_t i = 0; i < 3; ++i)
      if (i != bad) CHECK(t.parameters[i].grad().equal(full({3}, 2.0 * (1.0 + i))));
  }
}

TEST_CASE("fault 3: the floor of the scale is part of the saved state") {
  // JMP: it falls back to 1 with every flattening.
  Sgd t = sgd({.init_scale = 64, .min_scale = 32});
  t.step();
  Sgd resumed = sgd({.init_scale = 4});
  resumed.scaler.load_state_dict(t.scaler.state_dict());
  for (int i = 0; i < 5; ++i) resumed.step(true);
  CHECK(resumed.scaler.get_scale() == 32);
}

TEST_CASE("fault 4: the scale grows after the interval, not after one step more") {
  // Flax.
  for (const int64_t interval : {1, 2, 5}) {
    Sgd t = sgd({.init_scale = 8, .growth_interval = interval});
    for (int64_t i = 0; i < interval; ++i) {
      CHECK(t.scaler.get_scale() == 8);
      t.step();
    }
    CHECK(t.scaler.get_scale() == 16);
  }
}

TEST_CASE("fault 5: gradients are divided by the scale that they were multiplied with") {
  // DeepSpeed: at a growth they are divided by the scale after it.
  Sgd t = sgd({.init_scale = 8, .growth_interval = 1}, 1, 0.125);
  const Tensor plain = ones({3}, requires_grad());
  optim::SGD optimizer({plain}, optim::SGDOptions(0.125));
  for (int i = 0; i < 6; ++i) {
    t.step();
    optimizer.zero_grad();
    (plain * plain).sum().backward();
    optimizer.step();
    CHECK(t.parameters[0].equal(plain));
  }
}

TEST_CASE("fault 6: Adam never sees a scaled or infinite gradient, so nothing is to be undone") {
  // SuperOffload: steps first, and takes back by arithmetic what cannot be taken back.
  Adam t(2, optim::AdamOptions(0.1), {.init_scale = 8, .growth_interval = 1});
  Adam plain(2, optim::AdamOptions(0.1), amp::GradScalerOptions::fixed(1));
  for (const bool bad : {false, false, true, false, true, false}) {
    t.step(bad);
    if (!bad) plain.step();
  }
  for (size_t i = 0; i < 2; ++i) {
    CHECK(t.parameters[i].equal(plain.parameters[i]));
    for (const auto& [key, value] : t.optimizer.state_of(t.parameters[i]))
      CHECK(Tensor(value).equal(Tensor(plain.optimizer.state_of(plain.parameters[i]).at(key))));
  }
}

TEST_CASE("fault 7: the hysteresis that was asked for is the one that is used") {
  // DeepSpeed's FP16_Optimizer ignores it.
  Sgd t = sgd({.init_scale = 64, .hysteresis = 3});
  t.step(true), t.step(true);
  CHECK(t.scaler.get_scale() == 64);
  t.step(true);
  CHECK(t.scaler.get_scale() == 32);
}

TEST_CASE("fault 8: the verdict on any one list of gradients reaches the scale") {
  // FairScale: a copy of the flag is combined, and not copied back.
  for (size_t bad = 0; bad < 3; ++bad) {
    Sgd one = sgd({.init_scale = 64}), two = sgd({}), three = sgd({});
    one.scaler.scale(one.loss() + two.loss() + three.loss()).backward();
    Sgd* all[] = {&one, &two, &three};
    all[bad]->parameters[0].grad().fill_(kInf);
    for (size_t i = 0; i < 3; ++i)
      CHECK(one.scaler.step(all[i]->optimizer).found_inf() == (i == bad));
    one.scaler.update();
    CHECK(one.scaler.get_scale() == 32);
  }
}

TEST_CASE("fault 9: unscaling twice is noticed") {
  // FairScale assigns the new stage to a local variable.
  Sgd t = sgd({.init_scale = 64});
  t.backward();
  t.scaler.unscale_(t.optimizer);
  CHECK_THROWS_WITH_AS(t.scaler.unscale_(t.optimizer), doctest::Contains("already called"), Error);
  CHECK(t.parameters[0].grad().equal(full({3}, 2.0)));
  t.scaler.step(t.optimizer);
  CHECK_THROWS_WITH_AS(t.scaler.step(t.optimizer), doctest::Contains("already called"), Error);
}

TEST_CASE("fault 10: each hysteresis counts what its name says") {
  // Megatron documents overflows in a row, and counts those since the last growth.
  auto after_alternating = [](Hysteresis refill) {
    Sgd t = sgd({.init_scale = 64, .hysteresis = 2, .refill = refill});
    for (int i = 0; i < 6; ++i) t.step(i % 2 == 0);
    return t.scaler.get_scale();
  };
  CHECK(after_alternating(Hysteresis::RefilledByCleanStep) == 64);
  CHECK(after_alternating(Hysteresis::RefilledByGrowth) == 16);
}

TEST_CASE("fault 11: weights that were cast without recording get their gradients all the same") {
  // PyTorch: the cast made under no_grad is found again in the cache.
  const Tensor w = ones({4, 4}, requires_grad()), x = ones({2, 4});
  GradScaler scaler({.init_scale = 8});
  Tensor loss;
  {
    const amp::autocast region(kCPU, kFloat16);
    {
      const NoGradGuard no_grad;
      matmul(x, w);
    }
    loss = matmul(x, w).sum();
  }
  CHECK(loss.requires_grad());
  scaler.scale(loss).backward();
  CHECK(w.grad().equal(full({4, 4}, 16.0)));
}

TEST_CASE("fault 12: one overflow halves once, and a loss of the former scale is refused") {
  // RoundPipe: the verdict comes a step late and is counted twice; its pages divide by the scale
  // after update().
  Sgd t = sgd({.init_scale = 64});
  const Tensor late = t.scaler.scale(t.parameters[0].sum());
  t.step(true);
  CHECK(t.scaler.get_scale() == 32);
  t.step();
  CHECK(t.scaler.get_scale() == 32);
  t.optimizer.zero_grad();
  late.backward();
  CHECK_THROWS_WITH_AS(t.scaler.step(t.optimizer), doctest::Contains("scaled earlier"), Error);
}

TEST_CASE("fault 13: a resumed run goes on with the scale and the count of its good steps") {
  // nanoGPT among many others begins anew with 65536.
  Sgd t = sgd({.init_scale = 64, .growth_interval = 4});
  t.step(true), t.step(), t.step(), t.step();
  Sgd resumed = sgd({});
  resumed.scaler.load_state_dict(t.scaler.state_dict());
  CHECK(resumed.scaler.get_scale() == 32);
  resumed.step();
  CHECK(resumed.scaler.get_scale() == 64);
}

TEST_CASE("fault 14: a step that the device skipped is not taken for one that was applied") {
  // Accelerate asks whether step() was called, which a fused optimizer's always is.
  struct Counting final : optim::SGD {
    using SGD::SGD;
    int calls = 0;
    void update(const optim::OptimizerOptions& options, const std::vector<Tensor>& params,
                const StepControl& control) override {
      ++calls;
      SGD::update(options, params, control);
    }
  };
  const Tensor w = ones({3}, requires_grad());
  Counting optimizer(std::vector<Tensor>{w}, optim::SGDOptions(1.0));
  GradScaler scaler({.init_scale = 8});
  scaler.scale(w.sum()).backward();
  w.grad().fill_(kInf);
  const auto result = scaler.step(optimizer);
  CHECK(optimizer.calls == 1);
  CHECK_FALSE(result.applied());
  CHECK(w.equal(ones({3})));
}

TEST_CASE("fault 15: gradients of zero do not drive the scale out of its bounds") {
  // Keras: it grows without end; PyTorch and DeepSpeed have no bound to set.
  for (const double most : {0x1p20, 3e38}) {
    const Tensor w = ones({3}, requires_grad());
    optim::SGD optimizer({w}, optim::SGDOptions(1.0));
    GradScaler scaler({.growth_factor = 16, .growth_interval = 1, .max_scale = most});
    for (int i = 0; i < 60; ++i) {
      optimizer.zero_grad();
      scaler.scale((w * 0).sum()).backward();
      CHECK(scaler.step(optimizer).applied());
      scaler.update();
    }
    CHECK(std::isfinite(scaler.get_scale()));
    CHECK(scaler.get_scale() <= most);
    CHECK(scaler.get_scale() >= 0x1p20);
  }
}

TEST_CASE("fault 16: a model whose loss is NaN does not halve the scale to nothing") {
  // Every dynamic scaler.
  Sgd t = sgd({.init_scale = 64, .warn_after_skips = 0});
  for (int i = 0; i < 50; ++i) {
    t.optimizer.zero_grad();
    t.scaler.scale(t.loss() * kNaN).backward();
    CHECK(t.scaler.step(t.optimizer).bad_loss());
    t.scaler.update();
  }
  CHECK(t.scaler.get_scale() == 64);
  CHECK(t.scaler.stats().bad_losses == 50);
  CHECK(t.step().applied());
}

TEST_CASE(
    "fault 17: after a loss that is infinite every optimizer skips, however good its gradients") {
  // A sum with infinity has gradients of 1. The first check after scale() gets the loss's verdict
  // from it, those of further optimizers have to look it up.
  const Tensor w = ones({3}, requires_grad()), v = ones({3}, requires_grad());
  optim::SGD first({w}, optim::SGDOptions(1.0)), second({v}, optim::SGDOptions(1.0));
  for (const bool unscales : {false, true}) {
    GradScaler scaler({.init_scale = 64});
    first.zero_grad(), second.zero_grad();
    scaler.scale(w.sum() + v.sum() + kInf).backward();
    CHECK(isfinite(w.grad()).all().item<bool>());
    CHECK(isfinite(v.grad()).all().item<bool>());
    for (optim::SGD* optimizer : {&first, &second}) {
      if (unscales) scaler.unscale_(*optimizer);
      const auto result = scaler.step(*optimizer);
      CHECK(result.bad_loss());
      CHECK_FALSE(result.applied());
    }
    scaler.update();
    CHECK(scaler.get_scale() == 64);
  }
  CHECK(w.equal(ones({3})));
  CHECK(v.equal(ones({3})));
}
