// SGD against its closed forms.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>
#include <limits>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/optimizers.h"

using namespace halftape;
using optim::SGD;
using optim::SGDOptions;
using testing::differ;
using testing::wide_leaf;

namespace {

/// Steps with one constant gradient.
Tensor after(int steps, double gradient, const SGDOptions& options, double start = 0) {
  const Tensor p = full({3}, start, wide_leaf);
  SGD optimizer({p}, options);
  for (int t = 0; t < steps; ++t) testing::step_with(optimizer, gradient);
  return p.detach();
}

}  // namespace

TEST_CASE("plain SGD on a parabola of curvature a shrinks the parameter by 1 - lr*a each step") {
  const double a = 0.75, lr = 0.25;
  const Tensor p = tensor({1.0, -2.0, 8.0}, wide_leaf);
  SGD optimizer({p}, SGDOptions(lr));
  for (int t = 1; t <= 50; ++t) {
    optimizer.zero_grad();
    (p * p * (a / 2)).sum().backward();
    optimizer.step();
    const double shrunk = std::pow(1 - lr * a, t);
    CHECK(differ(p, {shrunk, -2 * shrunk, 8 * shrunk}, {.ulps = 64}) == "");
  }
}

TEST_CASE("under a constant gradient momentum is the geometric series, dampening scales its tail") {
  const double mu = 0.9, g = 0.5, lr = 0.125;
  for (const double d : {0.0, 0.25, 1.0}) {
    double moved = 0;
    for (int t = 1; t <= 30; ++t) {
      // The first buffer is g itself; every later gradient enters with 1 − d.
      const double power = std::pow(mu, t - 1);
      moved += power * g + (1 - d) * g * (1 - power) / (1 - mu);
      CAPTURE(d);
      CAPTURE(t);
      const Tensor p = after(t, g, SGDOptions(lr).momentum(mu).dampening(d));
      CHECK(differ(p, std::vector(3, -lr * moved), {.ulps = 64}) == "");
    }
  }
}

TEST_CASE("Nesterov's step looks one momentum ahead") {
  const double mu = 0.75, g = 2, lr = 0.5;
  double v = 0, p = 1;
  for (int t = 1; t <= 20; ++t) {
    v = mu * v + g;
    p -= lr * (g + mu * v);
    CHECK(differ(after(t, g, SGDOptions(lr).momentum(mu).nesterov(true), 1), std::vector(3, p),
                 {.ulps = 64}) == "");
  }
}

TEST_CASE("weight decay alone shrinks the parameter by 1 - lr*weight_decay") {
  const Tensor p = after(10, 0, SGDOptions(0.5).weight_decay(0.25), 3);
  CHECK(differ(p, std::vector(3, 3 * std::pow(1 - 0.125, 10)), {.ulps = 32}) == "");
}

TEST_CASE("maximizing f is minimizing -f, bit for bit, with weight decay as before") {
  const auto options = SGDOptions(0.1).momentum(0.9).weight_decay(0.3);
  const Tensor down = after(7, -0.7, options, 2);
  const Tensor up = after(7, 0.7, SGDOptions(options).maximize(true), 2);
  CHECK(testing::same_bits(up, down));
  CHECK(up.to_vector()[0] != after(7, 0.7, options, 2).to_vector()[0]);
}

TEST_CASE("a learning rate of 0 changes nothing but the momentum") {
  const Tensor p = full({2}, 1.5, wide_leaf);
  SGD optimizer({p}, SGDOptions(0.0).momentum(0.5));
  testing::step_with(optimizer, 4);
  CHECK(p.equal(full({2}, 1.5, kFloat64)));
  CHECK(Tensor(optimizer.state_of(p).at("momentum_buffer")).equal(full({2}, 4.0, kFloat64)));
}

TEST_CASE("SGD without momentum remembers nothing") {
  const Tensor p = ones({2}, wide_leaf);
  SGD plain({p}, SGDOptions(0.1).weight_decay(0.1));
  testing::step_with(plain, 1);
  CHECK(plain.state_of(p).empty());
  SGD heavy({p}, SGDOptions(0.1).momentum(0.9));
  CHECK(heavy.state_of(p).empty());
  heavy.step();
  CHECK(heavy.state_of(p).count("momentum_buffer") == 1);
}

TEST_CASE("momentum switched on later starts with the gradient of that step") {
  const Tensor p = zeros({1}, wide_leaf);
  SGD optimizer({p}, SGDOptions(1.0));
  testing::step_with(optimizer, 3);
  CHECK(p.item() == -3);
  static_cast<SGDOptions&>(optimizer.param_groups()[0].options()).momentum(0.5).dampening(0.5);
  optimizer.step();
  CHECK(p.item() == -6);
  optimizer.step();  // v = 0.5·3 + 0.5·3
  CHECK(p.item() == -9);
}

TEST_CASE("a momentum buffer that is set before the first step is used, as in LibTorch") {
  const Tensor p = zeros({1}, wide_leaf);
  SGD optimizer({p}, SGDOptions(1.0).momentum(0.5));
  static_cast<optim::SGDParamState&>(*optimizer.state()[p.unsafeGetTensorImpl()])
      .momentum_buffer(full({1}, 4.0, kFloat64));
  testing::step_with(optimizer, 1);  // v = 0.5·4 + 1
  CHECK(p.item() == -3);
  optimizer.step();  // v = 0.5·3 + 1
  CHECK(p.item() == -5.5);
}

TEST_CASE("16-bit parameters are updated in float and rounded once") {
  for (const Dtype d : {kFloat16, kBFloat16}) {
    const Tensor p = full({1}, 1.0, TensorOptions(d).requires_grad(true));
    SGD optimizer({p}, SGDOptions(1.0));
    // 1 − 0.75·eps lies nearer to 1 − eps/2·2 than to 1: below 1 the neighbours are eps/2 apart.
    p.mutable_grad() = full({1}, 0.75 * epsilon(d), d);
    optimizer.step();
    const double exact = 1 - 0.75 * epsilon(d);
    CHECK(p.item() == full({1}, exact, d).item());
    CHECK(p.item() < 1);
    CHECK(p.dtype() == d);
  }
}

TEST_CASE("float32 gradients may drive 16-bit parameters, and the other way round") {
  const Tensor half = ones({2}, TensorOptions(kFloat16).requires_grad(true));
  const Tensor wide = ones({2}, TensorOptions(kFloat32).requires_grad(true));
  SGD optimizer({half, wide}, SGDOptions(0.5));
  half.mutable_grad() = full({2}, 0.5, kFloat32);
  wide.mutable_grad() = full({2}, 0.5, kBFloat16);
  optimizer.step();
  CHECK(half.equal(full({2}, 0.75, kFloat16)));
  CHECK(wide.equal(full({2}, 0.75, kFloat32)));
}

TEST_CASE("SGD's options out of range are refused by name") {
  const std::vector<Tensor> p = {ones({1}, wide_leaf)};
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  for (const double bad : {-0.1, nan, inf}) {
    CAPTURE(bad);
    CHECK_THROWS_WITH_AS(SGD(p, SGDOptions(bad)), doctest::Contains("SGD: Invalid learning rate"),
                         Error);
    CHECK_THROWS_WITH_AS(SGD(p, SGDOptions().momentum(bad)), doctest::Contains("momentum"), Error);
    CHECK_THROWS_WITH_AS(SGD(p, SGDOptions().weight_decay(bad)), doctest::Contains("weight_decay"),
                         Error);
  }
  CHECK_THROWS_WITH_AS(SGD(p, SGDOptions().nesterov(true)), doctest::Contains("nesterov"), Error);
  CHECK_THROWS_WITH_AS(SGD(p, SGDOptions().nesterov(true).momentum(0.9).dampening(0.1)),
                       doctest::Contains("dampening 0.1"), Error);
  CHECK_NOTHROW(SGD(p, SGDOptions(0).momentum(0).weight_decay(0)));
}

TEST_CASE("SGD's defaults are LibTorch's: momentum, dampening, weight decay, nesterov all off") {
  const SGDOptions o;
  CHECK(o.lr() == 1e-3);
  CHECK(o.momentum() == 0);
  CHECK(o.dampening() == 0);
  CHECK(o.weight_decay() == 0);
  CHECK_FALSE(o.nesterov());
  CHECK_FALSE(o.maximize());
}
