// Activations against PyTorch's values and derivatives, and as modules. Every formula is also in
// the op table; here stands what the names mean.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>
#include <functional>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/vectors.h"

using namespace halftape;
namespace F = nn::functional;
using testing::differ;

namespace {

using Function = std::function<Tensor(const Tensor&)>;

}  // namespace

TEST_CASE("activations and their derivatives are PyTorch's at 31 points") {
  const testing::Vectors torch("activations.txt");
  const std::vector<std::pair<std::string, Function>> table = {
      {"gelu_none", [](const Tensor& x) { return F::gelu(x); }},
      {"gelu_tanh", [](const Tensor& x) { return F::gelu(x, "tanh"); }},
      {"silu", [](const Tensor& x) { return F::silu(x); }},
      {"softplus", [](const Tensor& x) { return F::softplus(x, 1, 700); }},
      {"sigmoid", [](const Tensor& x) { return F::sigmoid(x); }},
      {"tanh", [](const Tensor& x) { return F::tanh(x); }},
      {"relu", [](const Tensor& x) { return F::relu(x); }},
  };
  for (const auto& [key, f] : table) {
    const std::string& name = key;
    CAPTURE(name);
    const Tensor x = torch.tensor("x", {31}).requires_grad_();
    const Tensor y = f(x);
    y.sum().backward();
    // Relative to the largest, 30 or 1: torch's own left tails (1 + erf, 1 + tanh) have no more
    // digits.
    CHECK(differ(y, torch[name + "/value"], {.ulps = 8, .eps = 1}) == "");
    CHECK(differ(x.grad(), torch[name + "/derivative"], {.ulps = 8, .eps = 4}) == "");
  }
}

TEST_CASE("softmax and log_softmax of one row, and their gradients, are PyTorch's") {
  const testing::Vectors torch("activations.txt");
  const std::vector<double>& upstream = torch["x"];
  std::vector<double> counting;
  for (size_t i = 1; i <= upstream.size(); ++i) counting.push_back(static_cast<double>(i));
  for (const bool log : {false, true}) {
    const std::string name = log ? "log_softmax" : "softmax";
    CAPTURE(name);
    const Tensor x = torch.tensor("x", {1, 31}).requires_grad_();
    const Tensor y = log ? F::log_softmax(x, -1) : F::softmax(x, -1);
    y.backward(tensor(counting, kFloat64).reshape({1, 31}));
    // The logarithm's value near 0, and the difference of incoming gradients up to 31, cancel: by
    // then the exact derivative, computed with 60 digits, lies between torch's and ours.
    CHECK(differ(y, torch[name + "/value"], {.ulps = 16, .eps = log ? 1.0 : 0.0}) == "");
    CHECK(differ(x.grad(), torch[name + "/grad0"], {.ulps = 16, .eps = 4, .scale = 31}) == "");
  }
}

TEST_CASE("gelu knows two approximations and names them when asked for a third") {
  CHECK_THROWS_WITH_AS(F::gelu(ones({1}), "erf"), doctest::Contains("tanh"), Error);
  const Tensor x = full({1}, 1.0, kFloat64);
  CHECK(F::gelu(x, "none").item() != F::gelu(x, "tanh").item());
  CHECK(std::abs(F::gelu(x, "none").item() - F::gelu(x, "tanh").item()) < 1e-3);
}

TEST_CASE("activations as modules give what the functions give") {
  manual_seed(5);
  const Tensor x = randn({3, 4});
  auto same = [&](const auto& module, const Tensor& expected) {
    return testing::same_bits(module(x), expected);
  };
  CHECK(same(nn::ReLU(), F::relu(x)));
  CHECK(same(nn::Tanh(), F::tanh(x)));
  CHECK(same(nn::Sigmoid(), F::sigmoid(x)));
  CHECK(same(nn::SiLU(), F::silu(x)));
  CHECK(same(nn::GELU(), F::gelu(x)));
  CHECK(same(nn::GELU(nn::GELUOptions().approximate("tanh")), F::gelu(x, "tanh")));
  CHECK(same(nn::Softmax(0), F::softmax(x, 0)));
  CHECK(same(nn::Softmax(nn::SoftmaxOptions(1)), F::softmax(x, 1)));
  CHECK(same(nn::LogSoftmax(-1), F::log_softmax(x, -1)));
  CHECK_FALSE(same(nn::Softmax(0), F::softmax(x, 1)));
  CHECK_THROWS_WITH_AS(nn::Softmax(2)(x), doctest::Contains("softmax"), Error);
}

TEST_CASE("modules with options give what the functions give with the same ones") {
  manual_seed(6);
  const Tensor x = randn({3, 4}) * 3;
  const auto same = [&](const Tensor& module, const Tensor& function, const Tensor& op) {
    return testing::same_bits(module, function) && testing::same_bits(function, op);
  };
  CHECK(same(nn::ReLU6()(x), F::relu6(x), relu6(x)));
  CHECK(same(nn::SELU()(x), F::selu(x), selu(x)));
  CHECK(same(nn::Mish()(x), F::mish(x), mish(x)));
  CHECK(same(nn::Softsign()(x), F::softsign(x), softsign(x)));
  CHECK(same(nn::Tanhshrink()(x), F::tanhshrink(x), tanhshrink(x)));
  CHECK(same(nn::LogSigmoid()(x), F::logsigmoid(x), log_sigmoid(x)));
  CHECK(same(nn::Hardsigmoid()(x), F::hardsigmoid(x), hardsigmoid(x)));
  CHECK(same(nn::Hardswish()(x), F::hardswish(x), hardswish(x)));
  CHECK(same(nn::Softmin(1)(x), F::softmin(x, 1), softmin(x, 1)));
#define HALFTAPE_WITH(Name, name, options, ...)                                                \
  CHECK(same(nn::Name(nn::Name##Options options)(x), F::name(x, F::Name##FuncOptions options), \
             halftape::name(x, __VA_ARGS__)));
  HALFTAPE_WITH(ELU, elu, ().alpha(0.5), 0.5)
  HALFTAPE_WITH(CELU, celu, ().alpha(0.5), 0.5)
  HALFTAPE_WITH(LeakyReLU, leaky_relu, ().negative_slope(0.2), 0.2)
  HALFTAPE_WITH(Hardtanh, hardtanh, ().min_val(-0.5).max_val(2), -0.5, 2)
  HALFTAPE_WITH(Threshold, threshold, (0.25, -7), 0.25, -7)
  HALFTAPE_WITH(Hardshrink, hardshrink, (1.5), 1.5)
  HALFTAPE_WITH(Softshrink, softshrink, (1.5), 1.5)
  HALFTAPE_WITH(Softplus, softplus, ().beta(2).threshold(1), 2, 1)
  HALFTAPE_WITH(GELU, gelu, ().approximate("tanh"), "tanh")
  HALFTAPE_WITH(GLU, glu, (1), 1)
#undef HALFTAPE_WITH
  // Without options: what LibTorch has.
  CHECK(same(nn::ELU()(x), F::elu(x), elu(x, 1)));
  CHECK(same(nn::CELU()(x), F::celu(x), celu(x, 1)));
  CHECK(same(nn::LeakyReLU()(x), F::leaky_relu(x), leaky_relu(x, 0.01)));
  CHECK(same(nn::Hardtanh()(x), F::hardtanh(x), hardtanh(x, -1, 1)));
  CHECK(same(nn::Hardshrink()(x), F::hardshrink(x), hardshrink(x, 0.5)));
  CHECK(same(nn::Softshrink()(x), F::softshrink(x), softshrink(x, 0.5)));
  CHECK(same(nn::Softplus()(x), F::softplus(x), softplus(x, 1, 20)));
  CHECK(same(nn::GLU()(x), F::glu(x), glu(x, -1)));
  CHECK(same(nn::Threshold(0.25, -7)(x), F::threshold(x, {0.25, -7}), threshold(x, 0.25, -7)));
}

TEST_CASE("activations in place write to their input") {
  manual_seed(7);
  const Tensor x = randn({3, 4}) * 3;
  const auto written = [&](const auto& module, const Tensor& expected) {
    const Tensor y = x.clone(), result = module(y);
    return testing::same_bits(result, expected) && testing::same_bits(y, expected);
  };
  CHECK(written(nn::ReLU(true), relu(x)));
  CHECK(written(nn::ReLU6(nn::ReLU6Options(true)), relu6(x)));
  CHECK(written(nn::SELU(true), selu(x)));
  CHECK(written(nn::ELU(nn::ELUOptions().inplace(true)), elu(x)));
  CHECK(written(nn::CELU(nn::CELUOptions().inplace(true)), celu(x)));
  CHECK(written(nn::LeakyReLU(nn::LeakyReLUOptions().inplace(true)), leaky_relu(x)));
  CHECK(written(nn::Hardtanh(nn::HardtanhOptions().inplace(true)), hardtanh(x)));
  CHECK(written(nn::Threshold(nn::ThresholdOptions(1, 2).inplace(true)), threshold(x, 1, 2)));
  CHECK_FALSE(written(nn::ReLU(), relu(x)));
}

TEST_CASE("PReLU learns a slope for each channel") {
  const nn::PReLU one, two(nn::PReLUOptions().num_parameters(2).init(0.5));
  REQUIRE(one->parameters().size() == 1);
  CHECK(one->named_parameters()["weight"].to_vector() == std::vector<double>{0.25});
  const Tensor x = tensor({{-4.0, 2.0}, {-8.0, -6.0}}, kFloat32);
  CHECK(one(x).to_vector() == std::vector<double>{-1, 2, -2, -1.5});
  CHECK(two(x).to_vector() == std::vector<double>{-2, 2, -4, -3});
  two(x).sum().backward();
  CHECK(two->weight.grad().to_vector() == std::vector<double>{-12, -6});
  CHECK_THROWS_WITH_AS(nn::PReLU(nn::PReLUOptions().num_parameters(0)),
                       "PReLU: num_parameters 0 must be positive", Error);
}

TEST_CASE("RReLU draws a slope for each negative element, and takes their mean in evaluation") {
  manual_seed(1);
  nn::RReLU layer(nn::RReLUOptions().lower(0.2).upper(0.5));
  const Tensor x = cat({full({1000}, -2.0, kFloat64), full({3}, 3.0, kFloat64)}).requires_grad_();
  const Tensor y = layer(x);
  y.sum().backward();
  const auto values = y.to_vector(), slopes = x.grad().to_vector();
  double low = 1, high = 0, sum = 0;
  for (size_t i = 0; i < 1000; ++i) {
    REQUIRE(values[i] == -2 * slopes[i]);
    low = std::min(low, slopes[i]), high = std::max(high, slopes[i]), sum += slopes[i];
  }
  CHECK(low >= 0.2);
  CHECK(low < 0.21);
  CHECK(high < 0.5);
  CHECK(high > 0.49);
  CHECK(std::abs(sum / 1000 - 0.35) < 5 * 0.3 / std::sqrt(12.0 * 1000));
  CHECK(values.back() == 3);
  CHECK(slopes.back() == 1);
  layer->eval();
  CHECK(layer(x).equal(leaky_relu(x, 0.35)));
}

TEST_CASE("halves pass RReLU with slopes that are not rounded first") {
  for (const Dtype d : {kFloat16, kBFloat16}) {
    const Tensor x = linspace(-10, 10, 1001).to(d);
    const Tensor y = nn::functional::rrelu(
        x, nn::functional::RReLUFuncOptions().lower(0.1).upper(0.3).training(true));
    CHECK(((y >= x * 0.3) * (y <= x * 0.1) + (x >= 0) * (x == y)).all().item<bool>());
  }
}

TEST_CASE("gumbel_softmax draws classes by their probabilities, softly or as one-hot rows") {
  namespace F = nn::functional;
  manual_seed(3);
  const Tensor p = tensor({0.1, 0.2, 0.7}, kFloat64);
  const Tensor logits = p.log().expand({4000, 3});
  const Tensor hard = F::gumbel_softmax(logits, F::GumbelSoftmaxFuncOptions().hard(true));
  CHECK(((hard == 0) + (hard == 1)).all().item<bool>());
  CHECK(hard.sum({1}).equal(ones({4000}, kFloat64)));
  const auto share = hard.mean({0}).to_vector(), exact = p.to_vector();
  for (size_t i = 0; i < 3; ++i)
    CHECK(std::abs(share[i] - exact[i]) < 5 * std::sqrt(exact[i] * (1 - exact[i]) / 4000));
  const Tensor soft = F::gumbel_softmax(logits);
  CHECK(soft.sum({1}).allclose(ones({4000}, kFloat64)));
  CHECK(soft.amax().item<double>() < 1);
}

TEST_CASE("a hard sample of gumbel_softmax has the gradient of the soft one") {
  const Tensor a = randn({5, 4}, kFloat64).requires_grad_(), b = a.detach().requires_grad_();
  const Tensor g = randn({5, 4}, kFloat64);
  manual_seed(4);
  gumbel_softmax(a, 0.5, true).backward(g);
  manual_seed(4);
  gumbel_softmax(b, 0.5, false).backward(g);
  CHECK(a.grad().equal(b.grad()));
}

TEST_CASE("Softmax2d makes the channels of every place a distribution") {
  const Tensor x = randn({2, 3, 4, 5});
  CHECK(nn::Softmax2d()(x).equal(softmax(x, 1)));
  CHECK(nn::Softmax2d()(x[0]).equal(softmax(x[0], 0)));
  CHECK_THROWS_WITH_AS(nn::Softmax2d()(x[0][0]), doctest::Contains("[4, 5]"), Error);
}

TEST_CASE("Hardtanh refuses an empty range, also in reset()") {
  CHECK_THROWS_WITH_AS(nn::Hardtanh(nn::HardtanhOptions().min_val(1)),
                       doctest::Contains("max_val must be greater than min_val"), Error);
  nn::Hardtanh layer;
  layer->options.max_val(-2);
  CHECK_THROWS_WITH_AS(layer->reset(), doctest::Contains("-2 and -1"), Error);
}
