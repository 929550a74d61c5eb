// Initial values: the bounds and moments of every distribution in closed form. Seeds are fixed, so
// the statistical cases either pass always or never.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <algorithm>
#include <cmath>

using namespace halftape;
namespace init = nn::init;
using init::FanMode;
using init::Nonlinearity;

namespace {

struct Moments {
  double mean = 0, std = 0, low = 0, high = 0;
};

Moments moments(const Tensor& t) {
  const auto v = t.to_vector();
  const auto n = static_cast<double>(v.size());
  Moments m;
  for (const double x : v) m.mean += x / n;
  for (const double x : v) m.std += (x - m.mean) * (x - m.mean) / n;
  m.std = std::sqrt(m.std);
  m.low = *std::min_element(v.begin(), v.end());
  m.high = *std::max_element(v.begin(), v.end());
  return m;
}

/// Is `t` a sample of U(low, high)? Inside, filling it, and with its mean and spread.
void check_uniform(const Tensor& t, double low, double high) {
  const Moments m = moments(t);
  const auto n = static_cast<double>(t.numel());
  const double width = high - low, spread = width / std::sqrt(12.0);
  CAPTURE(low);
  CAPTURE(high);
  // The bounds, as float32 rounds them.
  CHECK(m.low >= low - 1e-6 * width);
  CHECK(m.high <= high + 1e-6 * width);
  // P(no value in the outer k/n) = e^−k: 1e-9 for k = 20. Then 5 standard errors.
  CHECK(m.low < low + width * 20 / n);
  CHECK(m.high > high - width * 20 / n);
  CHECK(std::abs(m.mean - (low + high) / 2) < 5 * spread / std::sqrt(n));
  CHECK(std::abs(m.std - spread) < 5 * spread * std::sqrt(0.2 / n));
}

/// Is `t` a sample of N(mean, std²)?
void check_normal(const Tensor& t, double mean, double std) {
  const Moments m = moments(t);
  const auto n = static_cast<double>(t.numel());
  CAPTURE(mean);
  CAPTURE(std);
  CHECK(std::abs(m.mean - mean) < 5 * std / std::sqrt(n));
  CHECK(std::abs(m.std - std) < 5 * std / std::sqrt(2 * n));
  double within = 0;
  for (const double x : t.to_vector()) within += std::abs(x - mean) < std;
  const double p = std::erf(1 / std::sqrt(2.0));  // 0.683
  CHECK(std::abs(within / n - p) < 5 * std::sqrt(p * (1 - p) / n));
}

}  // namespace

TEST_CASE("uniform_ and normal_ have the bounds and moments that they are asked for") {
  manual_seed(1);
  check_uniform(init::uniform_(empty({100, 200})), 0, 1);
  check_uniform(init::uniform_(empty({100, 200}), -3, 5), -3, 5);
  check_normal(init::normal_(empty({100, 200})), 0, 1);
  check_normal(init::normal_(empty({100, 200}), -2, 0.5), -2, 0.5);
}

TEST_CASE("constants fill every element, of any dtype") {
  for (const Dtype d : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
    CHECK(init::ones_(empty({2, 3}, d)).equal(ones({2, 3}, d)));
    CHECK(init::zeros_(empty({2, 3}, d)).equal(zeros({2, 3}, d)));
    CHECK(init::constant_(empty({2, 3}, d), 0.75).equal(full({2, 3}, 0.75, d)));
  }
}

TEST_CASE("fans are sizes 1 and 0, times the receptive field of a convolution") {
  using Fans = std::pair<int64_t, int64_t>;
  CHECK(init::calculate_fan_in_and_fan_out(empty({3, 5})) == Fans(5, 3));
  CHECK(init::calculate_fan_in_and_fan_out(empty({8, 4, 3, 3})) == Fans(36, 72));
  CHECK(init::calculate_fan_in_and_fan_out(empty({8, 4, 2})) == Fans(8, 16));
  CHECK_THROWS_WITH_AS(init::calculate_fan_in_and_fan_out(empty({3})),
                       doctest::Contains("the tensor is [3]"), Error);
  CHECK_THROWS_WITH_AS(init::xavier_uniform_(empty({})), doctest::Contains("2 dimensions"), Error);
  CHECK_THROWS_WITH_AS(init::kaiming_normal_(empty({4})), doctest::Contains("2 dimensions"), Error);
}

TEST_CASE("gains are PyTorch's table") {
  CHECK(init::calculate_gain(Nonlinearity::Linear) == 1);
  CHECK(init::calculate_gain(Nonlinearity::Sigmoid) == 1);
  CHECK(init::calculate_gain(Nonlinearity::Tanh) == doctest::Approx(5.0 / 3).epsilon(1e-15));
  CHECK(init::calculate_gain(Nonlinearity::ReLU) == doctest::Approx(std::sqrt(2)).epsilon(1e-15));
  CHECK(init::calculate_gain(Nonlinearity::LeakyReLU) ==
        doctest::Approx(std::sqrt(2 / 1.0001)).epsilon(1e-15));
  CHECK(init::calculate_gain(Nonlinearity::LeakyReLU, std::sqrt(5)) ==
        doctest::Approx(std::sqrt(1.0 / 3)).epsilon(1e-15));
}

TEST_CASE("kaiming_uniform_ is U(-b, b) with b = gain*sqrt(3/fan)") {
  manual_seed(2);
  const Shape shape{100, 400};
  // By default a = 0: the gain of relu.
  check_uniform(init::kaiming_uniform_(empty(shape)), -std::sqrt(6.0 / 400), std::sqrt(6.0 / 400));
  check_uniform(init::kaiming_uniform_(empty(shape), 0, FanMode::FanOut), -std::sqrt(6.0 / 100),
                std::sqrt(6.0 / 100));
  check_uniform(init::kaiming_uniform_(empty(shape), std::sqrt(5.0)), -1 / 20.0, 1 / 20.0);
  check_uniform(init::kaiming_uniform_(empty(shape), 0, FanMode::FanIn, Nonlinearity::Tanh),
                -5.0 / 3 * std::sqrt(3.0 / 400), 5.0 / 3 * std::sqrt(3.0 / 400));
  check_uniform(init::kaiming_uniform_(empty({20, 30, 5, 5})), -std::sqrt(6.0 / 750),
                std::sqrt(6.0 / 750));
}

TEST_CASE("kaiming_normal_ has the standard deviation gain/sqrt(fan)") {
  manual_seed(3);
  check_normal(init::kaiming_normal_(empty({100, 400})), 0, std::sqrt(2.0 / 400));
  check_normal(init::kaiming_normal_(empty({100, 400}), 0, FanMode::FanOut, Nonlinearity::Linear),
               0, std::sqrt(1.0 / 100));
  check_normal(init::kaiming_normal_(empty({100, 400}), 1), 0, std::sqrt(1.0 / 400));
}

TEST_CASE("xavier_uniform_ is U(-b, b) with b = gain*sqrt(6/(fan_in + fan_out))") {
  manual_seed(4);
  const double b = std::sqrt(6.0 / 500);
  check_uniform(init::xavier_uniform_(empty({100, 400})), -b, b);
  check_uniform(init::xavier_uniform_(empty({400, 100}), 2), -2 * b, 2 * b);
}

TEST_CASE("xavier_normal_ has the standard deviation gain*sqrt(2/(fan_in + fan_out))") {
  manual_seed(5);
  check_normal(init::xavier_normal_(empty({100, 400})), 0, std::sqrt(2.0 / 500));
  check_normal(init::xavier_normal_(empty({400, 100}), 3), 0, 3 * std::sqrt(2.0 / 500));
}

TEST_CASE("LibTorch's names for modes and nonlinearities are those of the enums") {
  CHECK(init::calculate_gain(kTanh) == doctest::Approx(5.0 / 3).epsilon(1e-15));
  CHECK(init::calculate_gain(kReLU) == std::sqrt(2.0));
  CHECK(init::calculate_gain(kLeakyReLU, 1) == 1);
  for (const init::NonlinearityType layer : {kLinear, kSigmoid, kConv1D, kConv2D, kConv3D,
                                             kConvTranspose1D, kConvTranspose2D, kConvTranspose3D})
    CHECK(init::calculate_gain(layer) == 1);
  manual_seed(8);
  check_normal(init::kaiming_normal_(empty({100, 400}), 0, kFanOut, kLinear), 0, 0.1);
  check_normal(init::kaiming_normal_(empty({100, 400}), 0, kFanIn, kLinear), 0, 0.05);
}

TEST_CASE("eye_ and dirac_ pass on what comes in") {
  CHECK(init::eye_(full({2, 3}, 7)).equal(eye(2, 3, kInt64)));
  CHECK(init::eye_(full({3, 2}, 7.0, kFloat16)).equal(eye(3, 2, kFloat16)));
  for (const Shape& shape : {Shape{2, 3, 3}, Shape{3, 2, 4, 5}, Shape{2, 2, 1, 2, 3}}) {
    const Tensor t = init::dirac_(full(shape, 7.0));
    CHECK(t.sum().item() == 2);
    Tensor middle = t;
    for (int64_t d = t.dim() - 1; d >= 2; --d) middle = middle.select(d, t.size(d) / 2);
    CHECK(middle.equal(eye(t.size(0), t.size(1))));
  }
  CHECK_THROWS_WITH_AS(init::eye_(empty({3})), doctest::Contains("the tensor is [3]"), Error);
  CHECK_THROWS_WITH_AS(init::dirac_(empty({3, 3})), doctest::Contains("3 to 5"), Error);
}

TEST_CASE("orthogonal_ makes orthonormal rows or columns, whichever are fewer, times the gain") {
  manual_seed(9);
  for (const Shape& shape : {Shape{4, 9}, Shape{9, 4}, Shape{30, 30}, Shape{5, 3, 2, 2}}) {
    const Tensor t = init::orthogonal_(empty(shape, kFloat64), 3).reshape({shape[0], -1});
    const bool wide = t.size(0) <= t.size(1);
    const Tensor gram = wide ? t.matmul(t.t()) : t.t().matmul(t);
    CHECK(gram.allclose(9 * eye(gram.size(0), kFloat64), 0, 1e-13));
  }
  CHECK(init::orthogonal_(empty({0, 3})).numel() == 0);
  CHECK_THROWS_WITH_AS(init::orthogonal_(empty({3})), doctest::Contains("the tensor is [3]"),
                       Error);
}

TEST_CASE("sparse_ sets the same number of zeros in every column, in random rows") {
  manual_seed(10);
  const Tensor t = init::sparse_(empty({300, 200}), 0.25, 2);
  const Tensor zero = t.eq(0);
  CHECK(zero.sum(0).equal(full({200}, 75)));
  // Each row is chosen 50 ± 6.1 times: five standard errors.
  CHECK(zero.sum(1).min().item() > 50 - 31);
  CHECK(zero.sum(1).max().item() < 50 + 31);
  check_normal(t.masked_select(t.ne(0)), 0, 2);
  CHECK(init::sparse_(empty({3, 2}), 1.0 / 6).eq(0).sum().item() == 2);  // ⌈0.5⌉ of each column
  CHECK_THROWS_WITH_AS(init::sparse_(empty({3}), 0.5), doctest::Contains("2 dimensions"), Error);
  CHECK_THROWS_WITH_AS(init::sparse_(empty({3, 3}), 1.5), doctest::Contains("1.5"), Error);
}

TEST_CASE("Linear starts in U(-1/sqrt(in), 1/sqrt(in)), weight and bias") {
  manual_seed(6);
  const nn::Linear layer(256, 5000);
  check_uniform(layer->weight, -1 / 16.0, 1 / 16.0);
  check_uniform(layer->bias, -1 / 16.0, 1 / 16.0);
  const nn::Linear wide(10000, 2);
  check_uniform(wide->weight, -0.01, 0.01);
  CHECK(std::abs(wide->bias.to_vector()[0]) <= 0.01);
}

TEST_CASE("initialisation writes into parameters without history, and gives the same handle back") {
  const Tensor p = empty({4, 5}, requires_grad());
  for (const auto& f : std::vector<Tensor (*)(Tensor)>{
           [](Tensor t) { return init::uniform_(std::move(t)); },
           [](Tensor t) { return init::normal_(std::move(t)); },
           [](Tensor t) { return init::ones_(std::move(t)); },
           [](Tensor t) { return init::eye_(std::move(t)); },
           [](Tensor t) { return init::orthogonal_(std::move(t)); },
           [](Tensor t) { return init::sparse_(std::move(t), 0.5); },
           [](Tensor t) { return init::kaiming_uniform_(std::move(t)); },
           [](Tensor t) { return init::kaiming_normal_(std::move(t)); },
           [](Tensor t) { return init::xavier_uniform_(std::move(t)); },
           [](Tensor t) { return init::xavier_normal_(std::move(t)); }}) {
    const auto version = p.version();
    CHECK(f(p).is_same(p));
    CHECK(p.version() > version);
    CHECK(p.is_leaf());
    CHECK(p.requires_grad());
  }
  CHECK(GradMode::is_enabled());
}

TEST_CASE("the same seed gives the same initial values, another seed others") {
  auto sample = [](uint64_t seed) {
    manual_seed(seed);
    return nn::Linear(6, 7)->weight.detach();
  };
  const Tensor first = sample(11);
  CHECK(first.equal(sample(11)));
  CHECK_FALSE(first.equal(sample(12)));
}

TEST_CASE("a network initialised for relu keeps the scale of its signal over ten layers") {
  manual_seed(7);
  Tensor x = randn({64, 256});
  for (int layer = 0; layer < 10; ++layer) {
    const Tensor w =
        init::kaiming_normal_(empty({256, 256}), 0, FanMode::FanIn, Nonlinearity::ReLU);
    x = nn::functional::relu(nn::functional::linear(x, w));
  }
  // E[relu(y)²] = E[y²]/2, which the gain √2 makes up for: the mean square stays 1.
  const double square = x.square().mean().item();
  CHECK(square > 0.5);
  CHECK(square < 2);
}

TEST_CASE("a tensor without elements takes any initialisation") {
  for (const auto& initialise :
       {init::kaiming_uniform_(zeros({5, 0})), init::kaiming_normal_(zeros({5, 0})),
        init::xavier_uniform_(zeros({0, 0})), init::xavier_normal_(zeros({5, 0}))})
    CHECK(initialise.numel() == 0);
}
