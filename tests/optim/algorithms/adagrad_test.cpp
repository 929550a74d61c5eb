// Adagrad against its closed forms.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/optimizers.h"

using namespace halftape;
using optim::Adagrad;
using optim::AdagradOptions;
using testing::differ;
using testing::step_with;
using testing::wide_leaf;

TEST_CASE("under a constant gradient Adagrad's steps shrink as 1/sqrt(t)") {
  for (const double g : {1e-3, -0.5, 300.0}) {
    for (const double start : {0.0, 0.25}) {
      for (const double decay : {0.0, 0.5}) {
        CAPTURE(g);
        CAPTURE(start);
        CAPTURE(decay);
        const double lr = 0.5, eps = 0.01;
        const Tensor p = zeros({2}, wide_leaf);
        Adagrad optimizer(
            {p}, AdagradOptions(lr).lr_decay(decay).eps(eps).initial_accumulator_value(start));
        double expected = 0;
        for (int t = 1; t <= 20; ++t) {
          step_with(optimizer, p, g);
          expected -= lr / (1 + (t - 1) * decay) * g / (std::sqrt(start + t * g * g) + eps);
          CHECK(differ(p, {expected, expected}, {.ulps = 64}) == "");
        }
      }
    }
  }
}

TEST_CASE("Adagrad has its state from construction on, and of a later group from its first step") {
  const Tensor p = zeros({3}, wide_leaf), late = zeros({2}, wide_leaf);
  Adagrad optimizer({p}, AdagradOptions().initial_accumulator_value(0.5));
  CHECK(differ(Tensor(optimizer.state_of(p).at("sum")), {0.5, 0.5, 0.5}, {}) == "");
  CHECK(Tensor(optimizer.state_of(p).at("step")).item() == 0);
  CHECK(optimizer.state_of(p).size() == 2);
  optimizer.add_param_group(optim::OptimizerParamGroup(std::vector<Tensor>{late}));
  CHECK(optimizer.state_of(late).empty());
  step_with(optimizer, late, 2);
  CHECK(differ(Tensor(optimizer.state_of(late).at("sum")), {4.5, 4.5}, {}) == "");
  CHECK(Tensor(optimizer.state_of(late).at("step")).item() == 1);
  CHECK(Tensor(optimizer.state_of(p).at("step")).item() == 0);
  // A group's own options count.
  AdagradOptions own;
  own.initial_accumulator_value(2);
  Adagrad two(std::vector<optim::OptimizerParamGroup>{{{p}}, {{late}, own.clone()}});
  CHECK(Tensor(two.state_of(p).at("sum"))[0].item() == 0);
  CHECK(Tensor(two.state_of(late).at("sum"))[0].item() == 2);
}

TEST_CASE("Adagrad's master and remainder follow weights that are loaded before the first step") {
  for (const optim::Weights weights : {optim::Weights::Master, optim::Weights::Kahan}) {
    const Tensor p = full({1}, 1.0, TensorOptions(kBFloat16).requires_grad(true));
    Adagrad optimizer({p}, AdagradOptions(0.5).weights(weights));
    p.detach().fill_(4);
    step_with(optimizer, p, 1);
    CHECK(p.item() == 3.5);
  }
}

TEST_CASE("Adagrad adds weight decay to the gradient, and goes up as it goes down") {
  const Tensor up = full({1}, 2.0, wide_leaf), down = full({1}, 2.0, wide_leaf),
               by_hand = full({1}, 2.0, wide_leaf);
  const auto options = [] { return AdagradOptions(0.1).lr_decay(0.1); };
  Adagrad one({up}, options().weight_decay(0.3).maximize(true)),
      two({down}, options().weight_decay(0.3)), three({by_hand}, options());
  for (int t = 0; t < 5; ++t) {
    const double g = std::cos(t);
    step_with(three, by_hand, g + 0.3 * by_hand.item().toDouble());
    step_with(one, up, -g);
    step_with(two, down, g);
    CHECK(testing::same_bits(up.detach(), down.detach()));
    CHECK(testing::same_bits(down.detach(), by_hand.detach()));
  }
}

TEST_CASE("a gradient of 0 moves nothing and makes no NaN") {
  const Tensor p = ones({2}, wide_leaf);
  Adagrad optimizer({p});
  for (int t = 0; t < 3; ++t) step_with(optimizer, p, 0);
  CHECK(p.equal(ones({2}, kFloat64)));
}

TEST_CASE("Adagrad's defaults are LibTorch's, and what makes no sense is refused in its words") {
  const AdagradOptions o;
  CHECK(o.lr() == 1e-2);
  CHECK(o.lr_decay() == 0);
  CHECK(o.weight_decay() == 0);
  CHECK(o.initial_accumulator_value() == 0);
  CHECK(o.eps() == 1e-10);
  CHECK_FALSE(o.maximize());
  const std::vector<Tensor> p = {ones({1}, wide_leaf)};
  const auto refused = [&](const AdagradOptions& bad, const char* words) {
    CHECK_THROWS_WITH_AS(Adagrad(p, bad), doctest::Contains(words), Error);
  };
  for (const double bad : {-0.5, std::nan("")}) {
    refused(AdagradOptions(bad), "Invalid learning rate: ");
    refused(AdagradOptions().lr_decay(bad), "Invalid lr_decay value: ");
    refused(AdagradOptions().weight_decay(bad), "Invalid weight_decay value: ");
    refused(AdagradOptions().initial_accumulator_value(bad),
            "Invalid initial_accumulator_value value: ");
    refused(AdagradOptions().eps(bad), "Invalid epsilon value: ");
  }
}
