// What an asynchronous optimizer takes as weights and state, and what it refuses.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

#include "halftape/core/contract/backend.h"
#include "halftape/tests/support/close.h"
#include "halftape/tests/support/optimizers.h"

using namespace halftape;
using optim::AsyncOptimizer;
using optim::SGDOptions;

namespace {

/// One parameter [1, 1], and steps of 0.5 that are over when step() returns.
struct PromptSingle {
  explicit PromptSingle(Dtype dtype = kFloat32, optim::Weights weights = {})
      : p(testing::leaf({2}, 1, dtype)),
        optimizer(std::make_unique<optim::SGD>(TensorList{p}, SGDOptions(0.5).weights(weights))) {}
  double step() {
    p.mutable_grad() = ones({2}, p.dtype());
    optimizer.step({.is_async = false});
    return value();
  }
  double value() const { return p.detach().to_vector()[0]; }
  Tensor p;
  AsyncOptimizer optimizer;
};

}  // namespace

TEST_CASE(
    "weights that are changed by hand count, also where the optimizer keeps masters of them") {
  PromptSingle one(kBFloat16, optim::Weights::Master);
  CHECK(one.step() == 0.5);
  one.p.detach().fill_(4);
  CHECK(one.step() == 3.5);
}

TEST_CASE("a resumed asynchronous run follows weights that were changed before it was saved") {
  for (const optim::Weights weights : {optim::Weights::Master, optim::Weights::Kahan}) {
    PromptSingle one(kBFloat16, weights), resumed(kBFloat16, weights);
    one.step();
    one.p.detach().fill_(4);
    resumed.optimizer.load_state_dict(one.optimizer.state_dict());
    CHECK(one.step() == 3.5);
    CHECK(resumed.step() == 3.5);
  }
}

TEST_CASE("a saved asynchronous state that no optimizer can have is refused") {
  PromptSingle one;
  one.step();
  const optim::AsyncOptimizerState good = one.optimizer.state_dict();
  const auto refused = [&](const auto& edit, const char* what) {
    optim::AsyncOptimizerState edited = good;
    edit(edited);
    CHECK_THROWS_WITH_AS(one.optimizer.load_state_dict(edited), doctest::Contains(what), Error);
    CHECK(one.value() == 0.5);
    CHECK(one.optimizer.steps() == 1);
  };
  refused([](auto& s) { s.newest[0] = zeros({2}).array(); },
          "saved weight 0 differs from the newest one, and it is not stale");
  refused([](auto& s) { s.weights[0] = zeros({2}).array(); }, "weight 0 differs from the newest");
  refused([](auto& s) { s.steps = -1; }, "it has -1 steps, expected 0 to 2^53");
  refused([](auto& s) { s.steps = INT64_MAX; }, "9223372036854775807 steps, expected 0 to 2^53");
  refused([](auto& s) { s.steps = 0, s.stale = true; }, "it is stale after 0 steps");
  refused([](auto& s) { s.newest.clear(); }, "it has 0 saved weights for 1 parameters");
  refused([](auto& s) { s.weights[0] = Array(); }, "saved weight 0 is undefined");

  optim::AsyncOptimizerState diverged = good;  // NaN is as new as itself
  diverged.weights[0] = full({2}, NAN).array();
  diverged.newest[0] = full({2}, NAN).array();
  one.optimizer.load_state_dict(diverged);
  CHECK(std::isnan(one.value()));
}

TEST_CASE("a weight that was written while the model is behind is not saved as the old one") {
  PromptSingle one;
  one.p.mutable_grad() = ones({2});
  one.optimizer.step();
  one.p.detach().fill_(5);
  CHECK_THROWS_WITH_AS(one.optimizer.state_dict(), doctest::Contains("one step behind"), Error);
}

TEST_CASE("a state of another dtype than the optimizer was made with is refused") {
  PromptSingle one, wide(kFloat64);
  one.step(), wide.step();
  one.p.set_data(one.p.detach().to(kFloat64));
  CHECK_THROWS_WITH_AS(one.optimizer.load_state_dict(wide.optimizer.state_dict()),
                       doctest::Contains("is float64 [2], expected float32 [2]"), Error);
}

TEST_CASE("a conversion that changes no weight is no write") {
  PromptSingle one;
  nn::Module model;
  model.register_parameter("p", one.p);
  one.p.mutable_grad() = ones({2});
  one.optimizer.step();
  const Device here = one.p.device();
  model.to(here), model.to(kFloat32), model.to(here, kFloat32);
  one.p.set_data(one.p.detach());
  one.optimizer.synchronize();
  CHECK(one.value() == 0.5);
}

TEST_CASE("a step draws the key of stochastic rounding in its caller's thread") {
  const SGDOptions options = SGDOptions(0x1p-9).weights(optim::Weights::Stochastic);
  // The weights after one step, and what the caller draws while the worker may still be at it.
  const auto ran = [&](bool is_async, optim::MeetingHook hook) {
    const auto former = optim::set_meeting_hook(hook);
    manual_seed(3);
    const Tensor p = testing::leaf({64}, 1, kBFloat16);
    AsyncOptimizer optimizer(std::make_unique<optim::SGD>(TensorList{p}, options));
    p.mutable_grad() = ones({64}, kBFloat16);
    optimizer.step({.is_async = is_async});
    const Tensor drawn = rand({64});
    optimizer.synchronize();
    optim::set_meeting_hook(former);
    return std::pair(p.detach().clone(), drawn);
  };
  const optim::MeetingHook late = [](optim::Meeting at) {
    if (at == optim::Meeting::Update) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  };
  manual_seed(3);
  const Tensor p = testing::leaf({64}, 1, kBFloat16);
  optim::SGD plain({p}, options);
  testing::step_with(plain, 1);
  const Tensor next = rand({64});
  const auto as_alone = [&](const std::pair<Tensor, Tensor>& got) {
    return testing::same_bits(got.first, p.detach()) && testing::same_bits(got.second, next);
  };
  CHECK(as_alone(ran(false, nullptr)));
  CHECK(as_alone(ran(true, nullptr)));
  CHECK(as_alone(ran(true, late)));
}

TEST_CASE("groups that came or went are refused by every call of an asynchronous optimizer") {
  PromptSingle one;
  one.step();
  const optim::AsyncOptimizerState good = one.optimizer.state_dict();
  auto& groups = one.optimizer.param_groups();
  const auto made = groups;
  for (const bool added : {true, false}) {
    if (added)
      groups.push_back(made[0]);
    else
      groups.clear();
    const char* what = added ? "has 2 groups, was made with 1" : "has 0 groups, was made with 1";
    one.p.mutable_grad() = ones({2});
    CHECK_THROWS_WITH_AS(one.optimizer.step(), doctest::Contains(what), Error);
    CHECK_THROWS_WITH_AS(one.optimizer.state_dict(), doctest::Contains(what), Error);
    CHECK_THROWS_WITH_AS(one.optimizer.load_state_dict(good), doctest::Contains(what), Error);
    groups = made;
    CHECK(one.value() == 0.5);
    CHECK(one.optimizer.steps() == 1);
  }
  groups[0].set_options(optim::AdamOptions().clone());
  CHECK_THROWS_WITH_AS(one.optimizer.step(), doctest::Contains("options of another class"), Error);
  groups = made;
  CHECK(one.step() == 0);
}

TEST_CASE("an asynchronous optimizer refuses what has no parameters, and states without bytes") {
  CHECK_THROWS_WITH_AS(AsyncOptimizer(std::make_unique<optim::SGD>(TensorList{})),
                       doctest::Contains("are the modules registered?"), Error);
  CHECK_THROWS_WITH_AS(AsyncOptimizer(std::make_unique<optim::LBFGS>(TensorList{ones({2})})),
                       doctest::Contains("needs a closure"), Error);
  PromptSingle one;
  one.step();
  const optim::AsyncOptimizerState good = one.optimizer.state_dict();
  const auto refused = [&](const char* what, auto change) {
    optim::AsyncOptimizerState bad = good;
    change(bad);
    CHECK_THROWS_WITH_AS(one.optimizer.load_state_dict(bad), doctest::Contains(what), Error);
    CHECK(one.value() == 0.5);
    CHECK(one.optimizer.steps() == 1);
  };
  refused("saved weight 0 is undefined, expected float32 [2]", [](auto& s) { s.newest[0] = {}; });
  refused("it has 0 saved weights for 1 parameters", [](auto& s) { s.weights.clear(); });
  refused("it has -1 steps", [](auto& s) { s.steps = -1; });
}

TEST_CASE("a step has its own copy of the finding that it was given") {
  static std::atomic<bool> cleared;
  cleared = false;
  const auto former = optim::set_meeting_hook([](optim::Meeting at) {
    while (at == optim::Meeting::Check && !cleared) std::this_thread::yield();
  });
  {
    PromptSingle one;
    const Array flag = full({}, 1, kFloat32, kCPU);
    one.p.mutable_grad() = ones({2});
    const optim::AsyncStep step = one.optimizer.step({.scale = 2.0, .found_inf = flag});
    backend(kCPU).fill(flag, 0);  // the next step's
    cleared = true;
    CHECK_FALSE(step.applied());
    one.optimizer.synchronize();
    CHECK(one.value() == 1);
  }
  optim::set_meeting_hook(former);
}
