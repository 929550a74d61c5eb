// Dropout and Flatten.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>
#include <sstream>

#include "halftape/tests/support/close.h"

using namespace halftape;

TEST_CASE("in training each element is 0 with probability p and x/(1 - p) otherwise") {
  manual_seed(1);
  for (const double p : {0.1, 0.25, 0.5, 0.9}) {
    CAPTURE(p);
    const nn::Dropout dropout(p);
    const Tensor x = full({200, 200}, 3.0, kFloat64);
    const auto y = dropout(x).to_vector();
    double zeros = 0;
    bool others = false;
    for (const double v : y) {
      zeros += v == 0;
      others |= v != 0 && std::abs(v - 3 / (1 - p)) > 1e-14;
    }
    CHECK_FALSE(others);
    const double n = 40000;
    CHECK(std::abs(zeros / n - p) < 5 * std::sqrt(p * (1 - p) / n));
  }
}

TEST_CASE("zeros fall anew at every call, and again the same from the same seed") {
  const nn::Dropout dropout(0.5);
  const Tensor x = ones({50, 50});
  manual_seed(4);
  const Tensor first = dropout(x), second = dropout(x);
  manual_seed(4);
  CHECK(dropout(x).equal(first));
  CHECK(dropout(x).equal(second));
  CHECK_FALSE(first.equal(second));
}

TEST_CASE("zeros fall independently of place: rows and columns have their share") {
  manual_seed(5);
  const Tensor kept = nn::Dropout(0.5)(ones({300, 300})) / 2;
  for (const int64_t dim : {0, 1})
    for (const double share : kept.mean({dim}).to_vector())
      CHECK(std::abs(share - 0.5) < 6 * 0.5 / std::sqrt(300.0));
}

TEST_CASE("the gradient passes where the value did, with the same factor") {
  manual_seed(2);
  const Tensor x = randn({40, 40}).requires_grad_();
  const Tensor y = nn::Dropout(0.25)(x);
  y.sum().backward();
  const auto value = y.to_vector(), in = x.to_vector(), g = x.grad().to_vector();
  for (size_t i = 0; i < g.size(); ++i) {
    const double expected = value[i] == 0 ? 0 : static_cast<double>(1 / 0.75f);
    REQUIRE(std::abs(g[i] - expected) < 1e-6);
    REQUIRE(std::abs(value[i] - in[i] * g[i]) < 1e-5);
  }
}

TEST_CASE("in evaluation, and with p = 0, dropout gives the input's own bits") {
  const Tensor x = randn({10, 10});
  nn::Dropout dropout(0.5);
  dropout->eval();
  CHECK(testing::same_bits(dropout(x), x));
  CHECK(testing::same_bits(nn::Dropout(0.0)(x), x));
  dropout->train();
  CHECK_FALSE(testing::same_bits(dropout(x), x));
  const Generator before = get_generator();
  dropout->eval();
  dropout(x);
  CHECK(get_generator().offset == before.offset);  // evaluation draws no random numbers
}

TEST_CASE("with p = 1 everything is 0, gradients too") {
  const Tensor x = randn({10}).requires_grad_();
  const Tensor y = nn::Dropout(1.0)(x);
  CHECK(y.equal(zeros({10})));
  y.sum().backward();
  CHECK(x.grad().equal(zeros({10})));
}

TEST_CASE("dropout keeps dtype and shape, and changes neither its input") {
  for (const Dtype d : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
    const Tensor x = ones({3, 4, 5}, d);
    const Tensor y = nn::functional::dropout(x, 0.5, true);
    CHECK(y.dtype() == d);
    CHECK(y.sizes() == x.sizes());
    CHECK(x.equal(ones({3, 4, 5}, d)));
    for (const double v : y.to_vector()) CHECK((v == 0 || v == 2));
  }
}

TEST_CASE("dropout's mean over many draws is its input") {
  manual_seed(3);
  const nn::Dropout dropout(0.3);
  const Tensor x = linspace(-1, 1, 21, kFloat64);
  Tensor sum = zeros({21}, kFloat64);
  const int n = 4000;
  for (int i = 0; i < n; ++i) sum += dropout(x);
  // One draw's standard deviation is |x|·√(p/(1 − p)).
  const auto mean = (sum / n).to_vector(), exact = x.to_vector();
  for (size_t i = 0; i < mean.size(); ++i)
    CHECK(std::abs(mean[i] - exact[i]) <=
          5 * std::abs(exact[i]) * std::sqrt(0.3 / 0.7 / n) + 1e-12);
}

TEST_CASE("a probability outside [0, 1] is refused, also when it is set later") {
  for (const double bad : {-0.1, 1.1, std::nan("")}) {
    CHECK_THROWS_WITH_AS(nn::Dropout{bad}, doctest::Contains("probability"), Error);
    nn::Dropout dropout;
    dropout->options.p(bad);
    CHECK_THROWS_WITH_AS(dropout(ones({2})), doctest::Contains("probability"), Error);
  }
  CHECK(nn::Dropout()->options.p() == 0.5);
}

TEST_CASE("Flatten makes all but the batch one dimension, or those that it is told") {
  const Tensor x = arange(24).to(kFloat32).reshape({2, 3, 4});
  CHECK(nn::Flatten()(x).equal(x.reshape({2, 12})));
  CHECK(nn::Flatten(nn::FlattenOptions().start_dim(0))(x).equal(x.reshape({24})));
  CHECK(nn::Flatten(nn::FlattenOptions().start_dim(0).end_dim(1))(x).equal(x.reshape({6, 4})));
  CHECK(nn::Flatten(nn::FlattenOptions().start_dim(-2).end_dim(-1))(x).equal(x.reshape({2, 12})));
  CHECK(nn::Flatten()(zeros({0, 3, 4})).sizes() == Shape{0, 12});
  CHECK(nn::Flatten()(x.permute({2, 0, 1})).equal(x.permute({2, 0, 1}).reshape({4, 6})));
}

TEST_CASE("Flatten's gradient has the input's shape") {
  const Tensor x = randn({2, 3, 4}).requires_grad_();
  const Tensor g = randn({2, 12});
  nn::Flatten()(x).backward(g);
  CHECK(x.grad().equal(g.reshape({2, 3, 4})));
}

TEST_CASE("Flatten refuses dimensions that are not there or run backwards") {
  CHECK_THROWS_WITH_AS(nn::Flatten()(zeros({3})), doctest::Contains("flatten"), Error);
  CHECK_THROWS_WITH_AS(nn::Flatten(nn::FlattenOptions().start_dim(2).end_dim(1))(zeros({2, 3, 4})),
                       doctest::Contains("flatten"), Error);
}

TEST_CASE("Dropout and Flatten print their options") {
  std::ostringstream out;
  out << nn::Dropout(0.25) << ' ' << nn::Flatten();
  CHECK(out.str() ==
        "halftape::nn::Dropout(p=0.25) halftape::nn::Flatten(start_dim=1, end_dim=-1)");
}
