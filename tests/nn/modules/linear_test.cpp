// Linear, Bilinear, and the layers that pass on or reshape.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>

#include "halftape/tests/support/close.h"

using namespace halftape;
using testing::differ;

namespace {

/// y = x·[[1, 2], [3, 4], [5, 6]]ᵀ + [10, 20, 30]
nn::Linear known(Dtype d = kFloat32) {
  nn::Linear layer(2, 3);
  layer->to(d);
  const NoGradGuard no_grad;
  layer->weight.copy_(tensor({{1.0, 2.0}, {3.0, 4.0}, {5.0, 6.0}}));
  layer->bias.copy_(tensor({10.0, 20.0, 30.0}));
  return layer;
}

}  // namespace

TEST_CASE("Linear computes x*weight^T + bias for any number of leading dimensions") {
  const nn::Linear layer = known();
  CHECK(layer(tensor({1.0, -1.0})).equal(tensor({9.0, 19.0, 29.0})));
  const Tensor rows = tensor({{1.0, -1.0}, {0.0, 2.0}});
  const Tensor expected = tensor({{9.0, 19.0, 29.0}, {14.0, 28.0, 42.0}});
  CHECK(layer(rows).equal(expected));
  CHECK(layer(rows.reshape({2, 1, 2})).equal(expected.reshape({2, 1, 3})));
  CHECK(layer->forward(rows.t().contiguous().t()).equal(expected));
  CHECK(layer(zeros({0, 2})).sizes() == Shape{0, 3});
  CHECK(layer(zeros({2, 0, 2})).sizes() == Shape{2, 0, 3});
}

TEST_CASE("Linear's gradients are g*weight, g^T*x and the sum of g") {
  const nn::Linear layer = known(kFloat64);
  const Tensor x = tensor({{1.0, -1.0}, {0.5, 2.0}}, kFloat64).requires_grad_();
  const Tensor g = tensor({{1.0, 0.0, -2.0}, {3.0, 1.0, 0.0}}, kFloat64);
  layer(x).backward(g);
  CHECK(differ(x.grad(), {-9, -10, 6, 10}, {}) == "");
  CHECK(differ(layer->weight.grad(), {2.5, 5, 0.5, 2, -2, 2}, {}) == "");
  CHECK(differ(layer->bias.grad(), {4, 1, -2}, {}) == "");
}

TEST_CASE("Linear without bias has one parameter and adds nothing") {
  const nn::Linear layer(nn::LinearOptions(2, 3).bias(false));
  CHECK_FALSE(layer->bias.defined());
  CHECK(layer->parameters().size() == 1);
  CHECK(layer(zeros({4, 2})).equal(zeros({4, 3})));
  CHECK_NOTHROW(layer->reset_parameters());
}

TEST_CASE("Linear's parameters have the shapes (out, in) and (out), and require grad") {
  const nn::Linear layer(5, 7);
  CHECK(layer->weight.sizes() == Shape{7, 5});
  CHECK(layer->bias.sizes() == Shape{7});
  CHECK(layer->weight.dtype() == kFloat32);
  CHECK(layer->weight.requires_grad());
  CHECK(layer->bias.requires_grad());
  CHECK(layer->options.in_features() == 5);
  CHECK(layer->options.out_features() == 7);
  const auto named = layer->named_parameters();
  CHECK(named.keys() == std::vector<std::string>{"weight", "bias"});
  CHECK(named["weight"].is_same(layer->weight));
  CHECK(named["bias"].is_same(layer->bias));
}

TEST_CASE("reset_parameters draws new values into the same tensors") {
  manual_seed(1);
  nn::Linear layer(4, 4);
  const Tensor handle = layer->weight, before = handle.detach().clone();
  layer->reset_parameters();
  CHECK(layer->weight.is_same(handle));
  CHECK_FALSE(handle.equal(before));
  CHECK(handle.abs().amax().item() <= 0.5);
}

TEST_CASE("an input that does not fit is refused with both shapes and both dtypes") {
  const nn::Linear layer(784, 256);
  CHECK_THROWS_WITH_AS(layer(zeros({32, 783})),
                       "linear: input [32, 783] has 783 features, weight [256, 784] expects 784",
                       Error);
  CHECK_THROWS_WITH_AS(layer(zeros({})), doctest::Contains("input []"), Error);
  CHECK_THROWS_WITH_AS(layer(zeros({2, 784}, kFloat64)), doctest::Contains("float64 and float32"),
                       Error);
  CHECK_THROWS_WITH_AS(layer(zeros({2, 784}, kInt64)), doctest::Contains("int64"), Error);
  CHECK_THROWS_WITH_AS(layer(Tensor()), doctest::Contains("undefined"), Error);
}

TEST_CASE("a Linear without inputs or outputs is refused") {
  for (const auto& [in, out] : {std::pair{0, 3}, {3, 0}, {-1, 3}, {3, -1}})
    CHECK_THROWS_WITH_AS(nn::Linear(in, out), doctest::Contains("must be positive"), Error);
}

TEST_CASE("the function linear refuses weights and biases of other shapes") {
  namespace F = nn::functional;
  const Tensor x = zeros({4, 2});
  CHECK_THROWS_WITH_AS(F::linear(x, zeros({2})), doctest::Contains("(out, in)"), Error);
  CHECK_THROWS_WITH_AS(F::linear(x, zeros({3, 2}), zeros({2})), doctest::Contains("expects [3]"),
                       Error);
  CHECK_THROWS_WITH_AS(F::linear(x, zeros({3, 2}), zeros({3, 1})), doctest::Contains("[3, 1]"),
                       Error);
}

TEST_CASE("Linear learns a linear map exactly") {
  manual_seed(2);
  nn::Linear layer(3, 2);
  layer->to(kFloat64);
  const Tensor w = randn({2, 3}, kFloat64), b = randn({2}, kFloat64);
  const Tensor x = randn({64, 3}, kFloat64), y = nn::functional::linear(x, w, b);
  optim::SGD optimizer(layer->parameters(), optim::SGDOptions(0.3));
  for (int i = 0; i < 500; ++i) {
    optimizer.zero_grad();
    nn::functional::mse_loss(layer(x), y).backward();
    optimizer.step();
  }
  CHECK(layer->weight.allclose(w, 0, 1e-9));
  CHECK(layer->bias.allclose(b, 0, 1e-9));
}

TEST_CASE("Identity gives its input back, the same tensor") {
  const Tensor x = randn({2, 3});
  CHECK(nn::Identity()(x).is_same(x));
  CHECK(nn::Identity()->parameters().empty());
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

TEST_CASE("Unflatten is Flatten's inverse, with one size left open") {
  const Tensor x = randn({2, 12, 3});
  CHECK(nn::Unflatten(1, std::vector<int64_t>{3, 4})(x).equal(x.reshape({2, 3, 4, 3})));
  CHECK(nn::Unflatten(nn::UnflattenOptions(-2, {-1, 2}))(x).equal(x.reshape({2, 6, 2, 3})));
  CHECK_THROWS_WITH_AS(nn::Unflatten(nn::UnflattenOptions(1, {5, 2}))(x),
                       doctest::Contains("unflatten"), Error);
}

TEST_CASE("Bilinear is a sum over pairs of inputs for each output") {
  const nn::Bilinear layer(2, 3, 2);
  CHECK(layer->weight.sizes() == Shape{2, 2, 3});
  CHECK(layer->bias.sizes() == Shape{2});
  CHECK(layer->weight.abs().amax().item<double>() <= 1 / std::sqrt(2.0));
  layer->to(kFloat64);
  const NoGradGuard no_grad;
  layer->weight.copy_(arange(12, kFloat64).reshape({2, 2, 3}));
  layer->bias.copy_(tensor({10.0, 20.0}));
  const Tensor a = tensor({{1.0, 2.0}}, kFloat64), b = tensor({{1.0, 0.0, -1.0}}, kFloat64);
  // Row i of weight_k times b is −2 for every i and k.
  CHECK(layer(a, b).equal(tensor({{10.0 - 6, 20.0 - 6}}, kFloat64)));
  const nn::Bilinear plain(nn::BilinearOptions(2, 3, 1).bias(false));
  CHECK(plain->parameters().size() == 1);
  CHECK_THROWS_WITH_AS(nn::Bilinear(0, 3, 2), doctest::Contains("must be positive"), Error);
}
