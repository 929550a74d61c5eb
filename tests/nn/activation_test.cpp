// Activations against PyTorch's values and derivatives, and as modules. Every formula is also in
// the op table; here stands what the names mean.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>
#include <functional>
#include <sstream>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/vectors.h"

using namespace halftape;
namespace F = nn::functional;
using testing::differ;

namespace {

using Function = std::function<Tensor(const Tensor&)>;

std::string printed(const nn::Module& module) {
  std::ostringstream out;
  out << module;
  return out.str();
}

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

TEST_CASE("activations have no parameters and print their options") {
  CHECK(nn::GELU()->parameters().empty());
  CHECK(printed(*nn::ReLU()) == "halftape::nn::ReLU()");
  CHECK(printed(*nn::Tanh()) == "halftape::nn::Tanh()");
  CHECK(printed(*nn::Sigmoid()) == "halftape::nn::Sigmoid()");
  CHECK(printed(*nn::SiLU()) == "halftape::nn::SiLU()");
  CHECK(printed(*nn::GELU()) == "halftape::nn::GELU()");
  CHECK(printed(*nn::Softmax(1)) == "halftape::nn::Softmax(dim=1)");
  CHECK(printed(*nn::LogSoftmax(-1)) == "halftape::nn::LogSoftmax(dim=-1)");
}
