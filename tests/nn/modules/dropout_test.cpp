// Dropout of elements and of features.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>

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

namespace {

/// Of x, how many of the features (N, C) are 0, and whether all others are `factor` times x's.
std::pair<int64_t, bool> features(const Tensor& y, const Tensor& x, double factor) {
  int64_t dropped = 0;
  bool whole = true;
  for (int64_t n = 0; n < x.size(0); ++n)
    for (int64_t c = 0; c < x.size(1); ++c) {
      const Tensor feature = y[n][c];
      const bool zero = feature.equal(zeros_like(feature));
      dropped += zero;
      whole &= zero || feature.allclose(factor * x[n][c]);
    }
  return {dropped, whole};
}

}  // namespace

TEST_CASE("Dropout2d and Dropout3d drop whole channels") {
  manual_seed(6);
  const Tensor x = rand({40, 50, 2, 3}, kFloat64) + 1,
               volume = rand({40, 50, 2, 3, 2}, kFloat64) + 1;
  for (const double p : {0.2, 0.5, 0.8}) {
    CAPTURE(p);
    const auto [dropped, whole] = features(nn::Dropout2d(p)(x), x, 1 / (1 - p));
    const auto [dropped3, whole3] = features(nn::Dropout3d(p)(volume), volume, 1 / (1 - p));
    // Without a batch, too.
    CHECK(features(nn::Dropout2d(p)(x[0]).unsqueeze(0), x.slice(0, 0, 1), 1 / (1 - p)).second);
    CHECK(features(nn::Dropout3d(p)(volume[0]).unsqueeze(0), volume.slice(0, 0, 1), 1 / (1 - p))
              .second);
    CHECK(whole);
    CHECK(whole3);
    for (const auto n : {dropped, dropped3})
      CHECK(std::abs(static_cast<double>(n) / 2000 - p) < 5 * std::sqrt(p * (1 - p) / 2000));
  }
}

TEST_CASE("of other numbers of dimensions Dropout2d and Dropout3d drop places of the first") {
  const auto by_first = [](const auto& layer, const Shape& shape) {
    const Tensor x = ones(shape), y = layer(x);
    CHECK(y.sizes() == shape);
    const auto [dropped, whole] = features(y.unsqueeze(0), x.unsqueeze(0), 2);
    CHECK(dropped > 10);
    CHECK(dropped < 54);
    CHECK(whole);
  };
  manual_seed(12);
  const nn::Dropout2d two(0.5);
  const nn::Dropout3d three(0.5);
  for (const Shape& s : {Shape{64}, Shape{64, 9}, Shape{64, 3, 2}, Shape{64, 3, 2, 2, 2}})
    by_first(two, s);
  for (const Shape& s : {Shape{64}, Shape{64, 9}, Shape{64, 3, 2}, Shape{64, 3, 2, 2}})
    by_first(three, s);
}

TEST_CASE("AlphaDropout keeps mean 0 and variance 1") {
  manual_seed(8);
  const Tensor x = randn({300, 400}, kFloat64);
  for (const double p : {0.1, 0.5, 0.9}) {
    CAPTURE(p);
    const Tensor y = nn::AlphaDropout(p)(x);
    CHECK(std::abs(y.mean().item<double>()) < 0.02);
    CHECK(std::abs(y.var().item<double>() - 1) < 0.03);
  }
}

TEST_CASE("AlphaDropout puts one value where it drops and is affine where it keeps") {
  manual_seed(9);
  const double p = 0.4, low = -1.7580993408473766;
  const double a = 1 / std::sqrt((1 - p) * (1 + p * low * low)), b = -a * p * low;
  const Tensor x = randn({50, 20}, kFloat64);
  const auto y = nn::AlphaDropout(p)(x).to_vector(), in = x.to_vector();
  int64_t dropped = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    const bool kept = std::abs(y[i] - (a * in[i] + b)) < 1e-12;
    dropped += !kept;
    REQUIRE((kept || std::abs(y[i] - (a * low + b)) < 1e-12));
  }
  CHECK(std::abs(static_cast<double>(dropped) / 1000 - p) < 5 * std::sqrt(p * (1 - p) / 1000));
}

TEST_CASE("FeatureAlphaDropout drops whole channels") {
  manual_seed(10);
  const Tensor x = randn({20, 10, 5}, kFloat64);
  const Tensor y = nn::FeatureAlphaDropout(0.5)(x);
  int64_t dropped = 0;
  for (int64_t n = 0; n < 20; ++n)
    for (int64_t c = 0; c < 10; ++c) dropped += y[n][c].var().item<double>() == 0;
  CHECK(dropped > 60);
  CHECK(dropped < 140);
}

TEST_CASE("every dropout gives the input's own bits in evaluation, and zeros for p = 1") {
  const Tensor x = randn({4, 3, 2});
  auto check = [&](auto layer) {
    CHECK(layer(x).equal(zeros_like(x)));
    layer->eval();
    CHECK(testing::same_bits(layer(x), x));
  };
  check(nn::Dropout(1.0));
  check(nn::Dropout2d(1.0));
  check(nn::Dropout3d(1.0));
  check(nn::AlphaDropout(1.0));
  check(nn::FeatureAlphaDropout(1.0));
}

TEST_CASE("dropout in place writes to its input, which may be no leaf that requires grad") {
  manual_seed(11);
  auto check = [](auto layer, auto plain) {
    manual_seed(11);
    const Tensor x = randn({6, 5, 2}), before = x.clone();
    manual_seed(12);
    const Tensor y = layer(x);
    manual_seed(12);
    CHECK(y.is_same(x));
    CHECK(testing::same_bits(x, plain(before)));
    const Tensor leaf = randn({6, 5, 2}).requires_grad_();
    CHECK_THROWS_AS(layer(leaf), Error);
    layer(leaf * 1).sum().backward();
    CHECK(leaf.grad().defined());
  };
  const auto o = nn::DropoutOptions(0.5).inplace(true);
  check(nn::Dropout(o), nn::Dropout(0.5));
  check(nn::Dropout2d(o), nn::Dropout2d(0.5));
  check(nn::AlphaDropout(o), nn::AlphaDropout(0.5));
  check(nn::FeatureAlphaDropout(o), nn::FeatureAlphaDropout(0.5));
}

TEST_CASE("the functions take LibTorch's options: alpha dropout rests unless it is told to train") {
  namespace F = nn::functional;
  const Tensor x = ones({10, 10, 4});
  CHECK_FALSE(F::dropout(x, F::DropoutFuncOptions().p(0.5)).equal(x));
  CHECK(F::dropout(x, F::DropoutFuncOptions().training(false)).equal(x));
  CHECK_FALSE(F::dropout2d(x).equal(x));
  CHECK_FALSE(F::dropout3d(x, F::Dropout3dFuncOptions().p(0.9)).equal(x));
  CHECK(F::alpha_dropout(x).equal(x));
  CHECK(F::feature_alpha_dropout(x).equal(x));
  CHECK_FALSE(F::alpha_dropout(x, F::AlphaDropoutFuncOptions().training(true)).equal(x));
}

TEST_CASE("dropout in place that drops nothing writes nothing") {
  nn::Sequential net{nn::Linear(4, 4), nn::ReLU(),
                     nn::Dropout(nn::DropoutOptions(0.5).inplace(true)),
                     nn::AlphaDropout(nn::DropoutOptions(0).inplace(true))};
  net->eval();
  net->forward(randn({2, 4})).sum().backward();
  const Tensor leaf = ones({2}).requires_grad_();
  CHECK(nn::functional::dropout(leaf, nn::functional::DropoutFuncOptions().p(0).inplace(true))
            .is_same(leaf));
}
