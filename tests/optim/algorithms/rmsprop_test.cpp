// RMSprop against its closed forms.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/optimizers.h"

using namespace halftape;
using optim::RMSprop;
using optim::RMSpropOptions;
using testing::differ;
using testing::step_with;
using testing::wide_leaf;

TEST_CASE("under a constant gradient RMSprop divides it by its own size times sqrt(1 - alpha^t)") {
  for (const double g : {1e-4, -0.5, 300.0}) {
    for (const double alpha : {0.99, 0.5, 0.0}) {
      for (const double mu : {0.0, 0.75}) {
        CAPTURE(g);
        CAPTURE(alpha);
        CAPTURE(mu);
        const double lr = 0.25, eps = 0.01;
        const Tensor p = zeros({2}, wide_leaf);
        RMSprop optimizer({p}, RMSpropOptions(lr).alpha(alpha).eps(eps).momentum(mu));
        double expected = 0, velocity = 0;
        for (int t = 1; t <= 10; ++t) {
          step_with(optimizer, p, g);
          velocity = mu * velocity + g / (std::abs(g) * std::sqrt(1 - std::pow(alpha, t)) + eps);
          expected -= lr * velocity;
          CHECK(differ(p, {expected, expected}, {.ulps = 256}) == "");
        }
      }
    }
  }
}

TEST_CASE("centered, RMSprop divides by the deviation, which of a constant gradient is alpha's") {
  // The running variance of a constant gradient g is (1 − αᵗ)·αᵗ·g².
  const double alpha = 0.5, g = 3, lr = 0.125, eps = 0.25;
  const Tensor p = zeros({1}, wide_leaf);
  RMSprop optimizer({p}, RMSpropOptions(lr).alpha(alpha).eps(eps).centered(true));
  double expected = 0;
  for (int t = 1; t <= 8; ++t) {
    step_with(optimizer, p, g);
    const double power = std::pow(alpha, t);
    expected -= lr * g / (std::sqrt((1 - power) * power) * g + eps);
    CHECK(differ(p, {expected}, {.ulps = 64}) == "");
  }
}

TEST_CASE("a variance that rounding takes below 0 makes no NaN") {
  for (const Dtype d : {kFloat32, kFloat64}) {
    const Tensor p = zeros({64}, TensorOptions(d).requires_grad(true));
    RMSprop optimizer({p}, RMSpropOptions(1e-3).alpha(0.9).eps(1).centered(true));
    const Tensor g = rand({64}, d);
    for (int t = 0; t < 500; ++t) {
      p.mutable_grad() = g;
      optimizer.step();
    }
    CHECK(isfinite(p).all().item<bool>());
    CHECK((p < 0).all().item<bool>());
  }
  // NaN stays NaN.
  const Tensor p = zeros({2}, wide_leaf);
  RMSprop optimizer({p}, RMSpropOptions(1.0).alpha(0).centered(true));
  p.mutable_grad() = tensor({1.0, std::nan("")}, kFloat64);
  optimizer.step();
  CHECK(std::isfinite(p.to_vector()[0]));
  CHECK(std::isnan(p.to_vector()[1]));
}

TEST_CASE("RMSprop adds weight decay to the gradient, and goes up as it goes down") {
  const Tensor up = full({1}, 2.0, wide_leaf), down = full({1}, 2.0, wide_leaf),
               by_hand = full({1}, 2.0, wide_leaf);
  const auto options = [] { return RMSpropOptions(0.1).momentum(0.5).centered(true); };
  RMSprop one({up}, options().weight_decay(0.3).maximize(true)),
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

TEST_CASE("RMSprop keeps what its options need, by PyTorch's names") {
  for (const double mu : {0.0, 0.5}) {
    for (const bool centered : {false, true}) {
      const Tensor p = zeros({3}, wide_leaf);
      RMSprop optimizer({p}, RMSpropOptions().momentum(mu).centered(centered));
      step_with(optimizer, p, 1);
      const auto& state = optimizer.state_of(p);
      CHECK(state.count("square_avg") == 1);
      CHECK(state.count("momentum_buffer") == (mu != 0));
      CHECK(state.count("grad_avg") == centered);
      CHECK(Tensor(state.at("step")).item() == 1);
      CHECK(state.size() == 2 + (mu != 0) + centered);
    }
  }
}

TEST_CASE("RMSprop's defaults are LibTorch's, and what makes no sense is refused in its words") {
  const RMSpropOptions o;
  CHECK(o.lr() == 1e-2);
  CHECK(o.alpha() == 0.99);
  CHECK(o.eps() == 1e-8);
  CHECK(o.weight_decay() == 0);
  CHECK(o.momentum() == 0);
  CHECK_FALSE(o.centered());
  CHECK_FALSE(o.maximize());
  const std::vector<Tensor> p = {ones({1}, wide_leaf)};
  const auto refused = [&](const RMSpropOptions& bad, const char* words) {
    CHECK_THROWS_WITH_AS(RMSprop(p, bad), doctest::Contains(words), Error);
  };
  for (const double bad : {-0.5, std::nan("")}) {
    refused(RMSpropOptions(bad), "Invalid learning rate: ");
    refused(RMSpropOptions().eps(bad), "Invalid epsilon value: ");
    refused(RMSpropOptions().momentum(bad), "Invalid momentum value: ");
    refused(RMSpropOptions().weight_decay(bad), "Invalid weight_decay value: ");
    refused(RMSpropOptions().alpha(bad), "Invalid alpha value: ");
  }
  refused(RMSpropOptions(-0.5), "RMSprop: Invalid learning rate: -0.5 is not in [0, inf)");
}
