// Adam and AdamW against their closed forms.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>
#include <limits>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/optimizers.h"

using namespace halftape;
using optim::Adam;
using optim::AdamOptions;
using optim::AdamW;
using optim::AdamWOptions;
using testing::differ;
using testing::step_with;
using Betas = AdamOptions::Betas;
using testing::wide_leaf;

TEST_CASE("under a constant gradient g Adam moves by lr*g/(|g| + eps) every step") {
  // Both bias-corrected moments are exact then: ĝ = g and v̂ = g².
  for (const double g : {1e-6, -0.5, 3e4}) {
    for (const double eps : {1e-8, 0.1}) {
      for (const Betas& betas : {Betas(0.9, 0.999), Betas(0, 0), Betas(0.5, 0.25)}) {
        CAPTURE(g);
        CAPTURE(eps);
        const Tensor p = zeros({2}, wide_leaf);
        Adam optimizer({p}, AdamOptions(0.25).betas(betas).eps(eps));
        for (int t = 1; t <= 20; ++t) {
          step_with(optimizer, p, g);
          const double moved = -0.25 * t * g / (std::abs(g) + eps);
          // 1 − β2ᵗ loses digits to cancellation at first: 1 − 0.999 has three fewer.
          CHECK(differ(p, {moved, moved}, {.ulps = 4096}) == "");
        }
      }
    }
  }
}

TEST_CASE(
    "after a single gradient Adam's moments decay geometrically, with amsgrad only the first") {
  const double b1 = 0.75, b2 = 0.875, lr = 0.5, eps = 1e-3;
  for (const bool amsgrad : {false, true}) {
    CAPTURE(amsgrad);
    const Tensor p = zeros({1}, wide_leaf);
    Adam optimizer({p}, AdamOptions(lr).betas(Betas(b1, b2)).eps(eps).amsgrad(amsgrad));
    double expected = 0;
    for (int t = 1; t <= 12; ++t) {
      step_with(optimizer, p, t == 1 ? 2 : 0);
      const double m = (1 - b1) * 2 * std::pow(b1, t - 1);
      const double v = (1 - b2) * 4 * (amsgrad ? 1 : std::pow(b2, t - 1));
      expected -= lr * m / (1 - std::pow(b1, t)) / (std::sqrt(v / (1 - std::pow(b2, t))) + eps);
      CHECK(differ(p, {expected}, {.ulps = 16}) == "");
    }
    CHECK(optimizer.state_of(p).count("max_exp_avg_sq") == (amsgrad ? 1 : 0));
  }
}

TEST_CASE("an average that forgets at once is the newest gradient, however large the one before") {
  const auto average = [](optim::Optimizer& optimizer, const Tensor& p, const char* name) {
    for (const double g : {1e12, 0.375}) step_with(optimizer, p, g);
    return Tensor(optimizer.state_of(p).at(name)).item<double>();
  };
  const Tensor p = zeros({1}, requires_grad());
  Adam adam({p}, AdamOptions(0.5).betas(Betas(0, 0.5)));
  CHECK(average(adam, p, "exp_avg") == 0.375);
  optim::RMSprop rmsprop({p}, optim::RMSpropOptions(0.5).alpha(0).centered(true));
  CHECK(average(rmsprop, p, "grad_avg") == 0.375);
}

TEST_CASE("without a gradient's pull AdamW shrinks the weight by 1 - lr*weight_decay") {
  const Tensor p = full({2}, 4.0, wide_leaf);
  AdamWOptions options(0.125);
  options.weight_decay(0.5);
  AdamW optimizer({p}, options);
  for (int t = 1; t <= 10; ++t) {
    step_with(optimizer, p, 0);
    const double shrunk = 4 * std::pow(1 - 0.0625, t);
    CHECK(differ(p, {shrunk, shrunk}, {.ulps = 16}) == "");
  }
}

TEST_CASE("Adam adds weight decay to the gradient, which then moves by lr like any other") {
  const Tensor p = tensor({4.0, -100.0}, wide_leaf);
  Adam optimizer({p}, AdamOptions(0.125).weight_decay(1e-3).eps(0));
  step_with(optimizer, p, 0);
  CHECK(differ(p, {4 - 0.125, -100 + 0.125}, {.ulps = 4}) == "");
}

TEST_CASE("AdamW decays first and then takes Adam's step") {
  const Tensor p = full({1}, 2.0, wide_leaf);
  AdamWOptions options(0.5);
  options.weight_decay(0.25).eps(0);
  AdamW optimizer({p}, options);
  step_with(optimizer, p, -3);
  CHECK(differ(p, {2 * (1 - 0.125) + 0.5}, {.ulps = 4}) == "");
}

TEST_CASE("maximizing f with Adam is minimizing -f, bit for bit") {
  for (const bool decoupled : {false, true}) {
    const Tensor up = full({1}, 2.0, wide_leaf), down = full({1}, 2.0, wide_leaf);
    auto make = [&](const Tensor& p, bool maximize) -> std::unique_ptr<optim::Optimizer> {
      if (!decoupled)
        return std::make_unique<Adam>(std::vector<Tensor>{p},
                                      AdamOptions(0.1).weight_decay(0.3).maximize(maximize));
      AdamWOptions o(0.1);
      o.weight_decay(0.3).maximize(maximize);
      return std::make_unique<AdamW>(std::vector<Tensor>{p}, o);
    };
    const auto one = make(up, true), two = make(down, false);
    for (int t = 0; t < 5; ++t) {
      const double g = std::cos(t);
      step_with(*one, up, g);
      step_with(*two, down, -g);
      CHECK(testing::same_bits(up.detach(), down.detach()));
    }
  }
}

TEST_CASE("every parameter counts its own steps, so a late one starts with a full correction") {
  const Tensor early = zeros({1}, wide_leaf), late = zeros({1}, wide_leaf);
  Adam optimizer({early, late}, AdamOptions(0.5).eps(0));
  for (int t = 0; t < 5; ++t) step_with(optimizer, early, 1);
  CHECK(optimizer.state_of(late).empty());
  step_with(optimizer, late, 1);
  CHECK(differ(late, {-0.5}, {.ulps = 64}) == "");
  CHECK(Tensor(optimizer.state_of(early).at("step")).item() == 6);
  CHECK(Tensor(optimizer.state_of(late).at("step")).item() == 1);
}

TEST_CASE("Adam's memory is a running mean of gradients and of their squares") {
  const Tensor p = zeros({3}, wide_leaf);
  Adam optimizer({p}, AdamOptions().betas(Betas(0.5, 0.75)));
  p.mutable_grad() = tensor({1.0, -2.0, 4.0}, kFloat64);
  optimizer.step();
  const auto& state = optimizer.state_of(p);
  CHECK(differ(Tensor(state.at("exp_avg")), {0.5, -1, 2}, {}) == "");
  CHECK(differ(Tensor(state.at("exp_avg_sq")), {0.25, 1, 4}, {}) == "");
  optimizer.step();
  CHECK(differ(Tensor(state.at("exp_avg")), {0.75, -1.5, 3}, {}) == "");
  CHECK(differ(Tensor(state.at("exp_avg_sq")), {0.4375, 1.75, 7}, {}) == "");
}

TEST_CASE("a gradient of 0 from the first step on moves nothing and makes no NaN") {
  const Tensor p = ones({2}, wide_leaf);
  Adam optimizer({p}, AdamOptions(0.5));
  for (int t = 0; t < 3; ++t) step_with(optimizer, p, 0);
  CHECK(p.equal(ones({2}, kFloat64)));
}

TEST_CASE("a NaN gradient makes its own element NaN and no other") {
  for (const bool amsgrad : {false, true}) {
    const Tensor p = ones({3}, wide_leaf);
    Adam optimizer({p}, AdamOptions(0.5).eps(0).amsgrad(amsgrad));
    p.mutable_grad() = tensor({1.0, std::nan(""), -1.0}, kFloat64);
    optimizer.step();
    CHECK(differ(p, {0.5, std::nan(""), 1.5}, {.ulps = 64}) == "");
    step_with(optimizer, p, 1);
    CHECK(std::isnan(p.to_vector()[1]));
    CHECK(std::isfinite(p.to_vector()[2]));
  }
}

TEST_CASE("16-bit parameters keep 16-bit moments and take the float step rounded once") {
  for (const Dtype d : {kFloat16, kBFloat16}) {
    const Tensor p = full({1}, 1.0, TensorOptions(d).requires_grad(true));
    Adam optimizer({p}, AdamOptions(0.3).eps(0));
    step_with(optimizer, p, 2);
    CHECK(p.item() == full({1}, 1 - 0.3, d).item());
    CHECK(p.dtype() == d);
    CHECK(optimizer.state_of(p).at("exp_avg").dtype() == d);
  }
}

TEST_CASE("Adam's options out of range are refused by name") {
  const std::vector<Tensor> p = {ones({1}, wide_leaf)};
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  for (const double bad : {-0.1, nan, inf}) {
    CAPTURE(bad);
    CHECK_THROWS_WITH_AS(Adam(p, AdamOptions(bad)),
                         doctest::Contains("Adam: Invalid learning rate"), Error);
    CHECK_THROWS_WITH_AS(Adam(p, AdamOptions().eps(bad)), doctest::Contains("epsilon value"),
                         Error);
    CHECK_THROWS_WITH_AS(Adam(p, AdamOptions().weight_decay(bad)),
                         doctest::Contains("weight_decay"), Error);
    CHECK_THROWS_WITH_AS(Adam(p, AdamOptions().betas(Betas(bad, 0.9))),
                         doctest::Contains("index 0"), Error);
    CHECK_THROWS_WITH_AS(Adam(p, AdamOptions().betas(Betas(0.9, bad))),
                         doctest::Contains("index 1"), Error);
  }
  CHECK_THROWS_WITH_AS(Adam(p, AdamOptions().betas(Betas(1, 0.9))), doctest::Contains("index 0: 1"),
                       Error);
  CHECK_THROWS_WITH_AS(Adam(p, AdamOptions().betas(Betas(0.9, 1))), doctest::Contains("index 1: 1"),
                       Error);
  CHECK_NOTHROW(Adam(p, AdamOptions(0).betas(Betas(0, 0)).eps(0)));
}

TEST_CASE("Adam's and AdamW's defaults are PyTorch's, and differ in the weight decay alone") {
  const AdamOptions adam;
  const AdamWOptions adamw;
  for (const AdamOptions* o : {&adam, static_cast<const AdamOptions*>(&adamw)}) {
    CHECK(o->lr() == 1e-3);
    CHECK(o->betas() == Betas(0.9, 0.999));
    CHECK(o->eps() == 1e-8);
    CHECK_FALSE(o->amsgrad());
    CHECK_FALSE(o->maximize());
  }
  CHECK(adam.weight_decay() == 0);
  CHECK(adamw.weight_decay() == 1e-2);
}

TEST_CASE("AdamW takes options set in one expression") {
  const Tensor p = ones({2}).requires_grad_();
  AdamW optimizer({p}, AdamWOptions(1e-2).betas({0.5, 0.6}).weight_decay(0.25));
  const auto& options = static_cast<AdamWOptions&>(optimizer.defaults());
  CHECK(options.lr() == 1e-2);
  CHECK(options.weight_decay() == 0.25);
  CHECK(options.betas() == std::make_tuple(0.5, 0.6));
  CHECK(AdamWOptions(1e-3).eps(1e-6).weight_decay() == 1e-2);
  CHECK(AdamWOptions(AdamWOptions(1e-3).weight_decay(0)).weight_decay() == 0);
}

TEST_CASE("AdamW does not take Adam's options for its own, and lose its weight decay") {
  const std::vector<Tensor> p{ones({2}).requires_grad_()};
  CHECK_THROWS_WITH_AS(AdamW(p, AdamOptions(1e-3)), doctest::Contains("AdamWOptions have 0.01"),
                       Error);
  const auto set = AdamWOptions(1e-3).eps(1e-6);  // AdamOptions, with the weight decay
  CHECK_NOTHROW(AdamW(p, set));
}
