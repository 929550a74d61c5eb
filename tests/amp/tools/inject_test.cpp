// Faults planned through the public API come to pass where and when they were planned.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <limits>
#include <optional>

#include "halftape/tests/support/tracing_backend.h"

using namespace halftape;
using amp::GradScaler;
using amp::inject;

namespace {

struct FaultyTraining {
  nn::Sequential model{nn::Linear(3, 4), nn::ReLU(), nn::Linear(4, 2)};
  optim::Adam optimizer{model->parameters(), optim::AdamOptions(0.01)};
  GradScaler scaler{{.init_scale = 64}};
  Tensor x = randn({5, 3}), y = randn({5, 2});
  amp::StepResult step() {
    optimizer.zero_grad();
    scaler.scale(mse_loss(model->forward(x), y)).backward();
    const auto result = scaler.step(optimizer);
    scaler.update();
    return result;
  }
  std::vector<std::pair<std::string, Tensor>> names() { return model->named_parameters().pairs(); }
};

void refused(const amp::Fault& fault,
             const std::vector<std::pair<std::string, Tensor>>& names = {}) {
  const auto guard = inject(fault, names);
}

}  // namespace

TEST_CASE("a fault planned by name happens at its step, and at no other") {
  FaultyTraining t;
  const auto fault = inject({.step = 3, .parameter = "2.weight"}, t.names());
  for (int i = 0; i < 7; ++i) {
    CHECK(fault.happened() == (i > 3));
    CHECK(t.step().found_inf() == (i == 3));
  }
  const auto first = t.scaler.stats().nonfinite;
  REQUIRE(first);
  CHECK(first->index == 2);
  CHECK(first->shape == Shape{2, 4});
  CHECK(t.scaler.stats().skips == 1);
  CHECK(t.scaler.get_scale() == 32);
}

TEST_CASE("a place names a parameter, of the given ones or of the optimizer") {
  for (const bool given : {true, false}) {
    for (int64_t place = 0; place < 4; ++place) {
      FaultyTraining t;
      const auto fault = inject({.parameter = place, .element = 1},
                                given ? t.names() : std::vector<std::pair<std::string, Tensor>>());
      CHECK(t.step().found_inf());
      CHECK(t.scaler.stats().nonfinite->index == static_cast<size_t>(place));
    }
  }
}

TEST_CASE("the value goes into one element, in row-major order, before the gradient is divided") {
  const Tensor w = ones({2, 3}, requires_grad());
  optim::SGD optimizer({w}, optim::SGDOptions(1.0));
  GradScaler scaler({.init_scale = 64});
  const auto fault = inject({.value = 640, .element = 4});
  scaler.scale(w.sum()).backward();
  scaler.unscale_(optimizer);
  CHECK(w.grad().equal(tensor({1., 1., 1., 1., 10., 1.}).reshape({2, 3})));
}

TEST_CASE("a fault ends with its guard, and several may be planned") {
  FaultyTraining t;
  {
    const auto one = inject({.step = 1}), two = inject({.step = 2, .parameter = int64_t{3}});
    CHECK(t.step().applied());
    CHECK_FALSE(t.step().applied());
    CHECK_FALSE(t.step().applied());
  }
  {
    const auto goes_on = inject({.step = 1});
    {
      const auto late = inject({.step = 1});
      CHECK(t.step().applied());
      CHECK_FALSE(late.happened());
    }
    CHECK_FALSE(t.step().applied());
    CHECK(goes_on.happened());
  }
  CHECK(t.step().applied());
}

TEST_CASE("planning faults costs no read, and what cannot happen is refused") {
  FaultyTraining t;
  t.step();
  {
    const auto fault = inject({.parameter = "0.bias"}, t.names());
    testing::TracingBackend trace;
    t.step();
    CHECK(trace.count("read") == 0);
    CHECK(fault.happened());
  }
  CHECK_THROWS_WITH_AS(refused({.parameter = "0.wait"}, t.names()), doctest::Contains("\"0.wait\""),
                       Error);
  CHECK_THROWS_WITH_AS(refused({.parameter = "0.weight"}), doctest::Contains("named_parameters()"),
                       Error);
  CHECK_THROWS_AS(refused({.parameter = int64_t{4}}, t.names()), Error);
  CHECK_THROWS_AS(refused({.step = -1}), Error);
  CHECK_THROWS_AS(refused({.parameter = int64_t{-1}}), Error);
  CHECK_THROWS_WITH_AS(refused({}, {{"none", Tensor()}}), doctest::Contains("undefined"), Error);
  const auto fault = inject({.parameter = "0.bias", .element = 4}, t.names());
  CHECK_THROWS_WITH_AS(t.step(), doctest::Contains("no element 4"), Error);
}

TEST_CASE("an injection that was moved from says so") {
  auto from = inject({});
  const auto to = std::move(from);
  CHECK_FALSE(to.happened());
  CHECK_THROWS_WITH_AS(from.happened(), doctest::Contains("moved from"), Error);  // NOLINT
}

TEST_CASE("a fault reaches an asynchronous step, in the gradients that it takes with it") {
  for (const bool by_name : {false, true}) {
    CAPTURE(by_name);
    nn::Linear model{3, 2};
    optim::AsyncOptimizer optimizer(
        std::make_unique<optim::SGD>(model->parameters(), optim::SGDOptions(0.1)));
    amp::AsyncGradScaler scaler({.init_scale = 64});
    const auto names = model->named_parameters().pairs();
    const auto fault = by_name ? inject({.step = 2, .parameter = "bias"}, names)
                               : inject({.step = 2, .parameter = int64_t{1}});
    Tensor before;
    for (int i = 0; i < 5; ++i) {
      CHECK(fault.happened() == (i > 2));
      scaler.scale(model->forward(ones({1, 3})).sum()).backward();
      const optim::AsyncStep step = scaler.step(optimizer, {.is_async = false});
      scaler.update();
      CHECK(step.applied() == (i != 2));
      CHECK(step.nonfinite() == (i == 2 ? std::optional<size_t>(1) : std::nullopt));
      if (i == 2) CHECK(model->bias.equal(before));
      before = model->bias.detach().clone();
    }
    CHECK(scaler.stats().skips == 1);
    CHECK(scaler.stats().nonfinite->shape == Shape{2});
    CHECK(scaler.get_scale(true) == 32);
  }
}

TEST_CASE("the value goes into an asynchronous gradient before it is divided and clipped") {
  const Tensor w = zeros({2}, requires_grad());
  optim::AsyncOptimizer optimizer(
      std::make_unique<optim::SGD>(std::vector<Tensor>{w}, optim::SGDOptions(1.0)));
  amp::AsyncGradScaler scaler({.init_scale = 64});
  const auto fault = inject({.value = 64 * 8, .element = 1});
  scaler.scale(w.sum()).backward();
  CHECK(scaler.step(optimizer, {.is_async = false}).applied());
  CHECK(w.equal(tensor({-1., -8.})));
}

TEST_CASE("a planned fault keeps its parameter, so no other one takes its place") {
  auto w = std::make_optional(ones({2}, requires_grad()));
  const auto fault = inject({.parameter = "w"}, {{"w", *w}});
  w.reset();
  const Tensor other = ones({2}, requires_grad());
  optim::SGD optimizer({other}, optim::SGDOptions(1.0));
  GradScaler scaler({.init_scale = 64});
  scaler.scale(other.sum()).backward();
  CHECK(scaler.step(optimizer).applied());
  CHECK_FALSE(fault.happened());
}
