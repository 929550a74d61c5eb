// Lion against its closed forms.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/optimizers.h"

using namespace halftape;
using optim::Lion;
using optim::LionOptions;
using testing::differ;
using testing::step_with;
using Betas = LionOptions::Betas;
using testing::wide_leaf;

TEST_CASE("Lion moves every weight by lr, whatever the size of its gradient, and not by 0") {
  const Tensor p = zeros({4}, wide_leaf);
  Lion optimizer({p}, LionOptions(0.25));
  for (int t = 1; t <= 4; ++t) {
    p.mutable_grad() = tensor({1e-30, -2.0, 1e30, 0.0}, kFloat64);
    optimizer.step();
    CHECK(differ(p, {-0.25 * t, 0.25 * t, -0.25 * t, 0}, {}) == "");
  }
}

TEST_CASE("Lion's step interpolates by beta1, its momentum by beta2 after it") {
  // m after 8: 8·(1 − 0.75) = 2. Then c = 0.5·m + 0.5·g has the sign of m + g.
  for (const double g : {-1.5, -2.0, -2.5}) {
    const Tensor p = zeros({1}, wide_leaf);
    Lion optimizer({p}, LionOptions(1).betas(Betas(0.5, 0.75)));
    step_with(optimizer, p, 8);
    CHECK(Tensor(optimizer.state_of(p).at("exp_avg")).item() == 2);
    CHECK(p.item() == -1);
    step_with(optimizer, p, g);
    CHECK(p.item() == (g > -2 ? -2 : g == -2 ? -1 : 0));
    CHECK(Tensor(optimizer.state_of(p).at("exp_avg")).item() == 0.75 * 2 + 0.25 * g);
    CHECK(optimizer.state_of(p).size() == 1);
  }
}

TEST_CASE("Lion shrinks the weight by 1 - lr*weight_decay before the step") {
  const Tensor p = full({2}, 4.0, wide_leaf);
  Lion optimizer({p}, LionOptions(0.125).weight_decay(0.5));
  step_with(optimizer, p, 3);
  CHECK(differ(p, {4 * (1 - 0.0625) - 0.125, 4 * (1 - 0.0625) - 0.125}, {}) == "");
  const Tensor q = full({1}, 4.0, wide_leaf);
  Lion rest({q}, LionOptions(0.125).weight_decay(0.5));
  for (int t = 1; t <= 10; ++t) {
    step_with(rest, q, 0);
    CHECK(differ(q, {4 * std::pow(1 - 0.0625, t)}, {.ulps = 16}) == "");
  }
}

TEST_CASE("maximizing f with Lion is minimizing -f, and NaN stays where it is") {
  const Tensor up = full({1}, 2.0, wide_leaf), down = full({1}, 2.0, wide_leaf);
  Lion one({up}, LionOptions(0.1).weight_decay(0.3).maximize(true)),
      two({down}, LionOptions(0.1).weight_decay(0.3));
  for (int t = 0; t < 8; ++t) {
    step_with(one, up, std::cos(t));
    step_with(two, down, -std::cos(t));
    CHECK(testing::same_bits(up.detach(), down.detach()));
  }
  const Tensor p = zeros({2}, wide_leaf);
  Lion optimizer({p}, LionOptions(1));
  p.mutable_grad() = tensor({1.0, std::nan("")}, kFloat64);
  optimizer.step();
  CHECK(p.to_vector()[0] == -1);
  CHECK(std::isnan(p.to_vector()[1]));
}

TEST_CASE("Lion's defaults are the paper's, and what makes no sense is refused") {
  const LionOptions o;
  CHECK(o.lr() == 1e-4);
  CHECK(o.betas() == Betas(0.9, 0.99));
  CHECK(o.weight_decay() == 0);
  CHECK_FALSE(o.maximize());
  const std::vector<Tensor> p = {ones({1}, wide_leaf)};
  const auto refused = [&](const LionOptions& bad, const char* words) {
    CHECK_THROWS_WITH_AS(Lion(p, bad), doctest::Contains(words), Error);
  };
  for (const double bad : {-0.5, std::nan("")}) {
    refused(LionOptions(bad), "Invalid learning rate: ");
    refused(LionOptions().weight_decay(bad), "Invalid weight_decay value: ");
    refused(LionOptions().betas({bad, 0.9}), "Invalid beta parameter at index 0: ");
    refused(LionOptions().betas({0.9, bad}), "Invalid beta parameter at index 1: ");
  }
  refused(LionOptions().betas({1, 0.9}), "index 0: 1 is not in [0, 1)");
}
