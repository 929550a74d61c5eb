// What an asynchronous optimizer takes as weights and state, and what it refuses.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <memory>

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

TEST_CASE("an asynchronous optimizer refuses what has no parameters, and states without bytes") {
  CHECK_THROWS_WITH_AS(AsyncOptimizer(std::make_unique<optim::SGD>(TensorList{})),
                       doctest::Contains("are the modules registered?"), Error);
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
