// nn::utils: parameters as one vector, and weight normalisation. Clipping: tests/optim.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <sstream>

using namespace halftape;
using doctest::Contains;
using Names = std::vector<std::string>;
namespace utils = nn::utils;

TEST_CASE("parameters become one vector with history, and a vector becomes the parameters") {
  const nn::Sequential net(nn::Linear(3, 2), nn::Linear(2, 1));
  const Tensor v = utils::parameters_to_vector(net->parameters());
  CHECK(v.sizes() == Shape{11});
  CHECK(v.narrow(0, 0, 6).equal(net->parameters()[0].reshape({6})));
  v.sum().backward();
  CHECK(net->parameters()[3].grad().equal(ones({1})));
  const Tensor handle = net->parameters()[0];
  const void* place = handle.const_data_ptr();
  utils::vector_to_parameters(arange(11, kFloat64), net->parameters());
  CHECK(utils::parameters_to_vector(net->parameters()).equal(arange(11, kFloat32)));
  CHECK(net->parameters()[0].is_same(handle));
  CHECK(handle.const_data_ptr() == place);
  CHECK(handle.is_leaf());
}

TEST_CASE("a vector of another size is refused, and changes nothing") {
  const nn::Linear fc(2, 1);
  const Tensor before = fc->weight.detach().clone();
  CHECK_THROWS_WITH_AS(utils::vector_to_parameters(zeros({4}), fc->parameters()),
                       Contains("the parameters have 3 elements"), Error);
  CHECK_THROWS_WITH_AS(utils::vector_to_parameters(zeros({3, 1}), fc->parameters()),
                       Contains("[3, 1]"), Error);
  CHECK(fc->weight.equal(before));
  CHECK_THROWS_WITH_AS(utils::parameters_to_vector({}), Contains("no parameters"), Error);
}

TEST_CASE("weight_norm changes nothing at first, and has PyTorch's names") {
  const nn::Linear plain(3, 2);
  const auto fc = utils::weight_norm(plain);
  const Tensor x = randn({4, 3});
  CHECK(fc(x).allclose(plain(x)));
  CHECK(fc->named_parameters().keys() == Names{"bias", "weight_g", "weight_v"});
  CHECK(fc->weight_g.sizes() == Shape{2, 1});
  CHECK(fc->weight_v.equal(plain->weight));
  CHECK(fc->bias.is_same(plain->bias));
  CHECK(utils::weight_norm(plain, 1)->weight_g.sizes() == Shape{1, 3});
  CHECK(utils::weight_norm(plain, -2)->weight_g.sizes() == Shape{2, 1});
  CHECK(utils::weight_norm(plain, -1)->weight_g.sizes() == Shape{1, 1});
  CHECK(utils::weight_norm(plain, std::nullopt)->weight_g.sizes() == Shape{1, 1});
  CHECK_THROWS_WITH_AS(utils::weight_norm(plain, 2), Contains("dim 2"), Error);
}

TEST_CASE("a layer's norm is split once") {
  const auto once = utils::weight_norm(nn::Linear(3, 2));
  CHECK_THROWS_WITH_AS(utils::weight_norm(once), Contains("its norm is split already"), Error);
}

TEST_CASE("the weight is g times v over its norm, and gradients reach both") {
  const auto fc = utils::weight_norm(nn::Linear(nn::LinearOptions(2, 2).bias(false)));
  fc->to(kFloat64);
  {
    const NoGradGuard no_grad;
    fc->weight_v.copy_(tensor({{3.0, 4.0}, {0.0, 2.0}}));
    fc->weight_g.copy_(tensor({{10.0}, {1.0}}));
  }
  const Tensor x = tensor({{1.0, 1.0}}, kFloat64);
  const Tensor y = fc(x);
  CHECK(y.allclose(tensor({{14.0, 1.0}}, kFloat64)));
  y.sum().backward();
  CHECK(fc->weight_g.grad().allclose(tensor({{1.4}, {1.0}}, kFloat64)));
  // Orthogonal to v: g/‖v‖·(x − (x·u)u) with u = v/‖v‖.
  CHECK(fc->weight_v.grad().allclose(tensor({{0.32, -0.24}, {0.5, 0.0}}, kFloat64)));
  CHECK(autograd::gradcheck(
      [](const TensorList& in) { return utils::normalized_weight(in[0], in[1]); },
      {randn({3, 4}, TensorOptions(kFloat64).requires_grad(true)),
       randn({3, 1}, TensorOptions(kFloat64).requires_grad(true))}));
}

TEST_CASE("two forward passes before one backward pass keep their own weights") {
  const auto fc = utils::weight_norm(nn::Linear(2, 2));
  const Tensor a = fc(ones({1, 2})), b = fc(full({1, 2}, 2.0));
  (a.sum() + b.sum()).backward();
  CHECK(fc->bias.grad().equal(full({2}, 2.0)));
}

TEST_CASE("a normalised layer stands in Sequential, moves, and is cloned as what it is") {
  const auto fc = utils::weight_norm(nn::Linear(3, 2));
  const nn::Sequential net(fc, nn::Tanh());
  net->to(kFloat64);
  const Tensor x = randn({4, 3}, kFloat64);
  const nn::Sequential copy = std::dynamic_pointer_cast<nn::SequentialImpl>(net->clone());
  CHECK(copy(x).equal(net(x)));
  CHECK(copy->named_parameters().keys() == Names{"0.bias", "0.weight_g", "0.weight_v"});
  const NoGradGuard no_grad;
  fc->weight_g.mul_(2);
  CHECK_FALSE(copy(x).equal(net(x)));
}

TEST_CASE("remove_weight_norm gives a plain layer of the same value") {
  const auto fc = utils::weight_norm(nn::Linear(3, 2));
  {
    const NoGradGuard no_grad;
    fc->weight_g.mul_(3);
  }
  const nn::Linear plain = utils::remove_weight_norm(fc);
  const Tensor x = randn({4, 3});
  CHECK(plain(x).equal(fc(x)));
  CHECK(plain->named_parameters().keys() == Names{"bias", "weight"});
  CHECK(plain->weight.is_leaf());
  CHECK(plain->weight.requires_grad());
  CHECK(fc->named_parameters().keys() == Names{"bias", "weight_g", "weight_v"});
}

TEST_CASE("clip_grad_norm_ takes parameters in braces or one alone, and its norm is a number") {
  const Tensor p = zeros({2}).requires_grad_(), q = zeros({2}).requires_grad_();
  p.mutable_grad() = tensor({3.0, 4.0});
  q.mutable_grad() = tensor({3.0, 4.0});
  const double norm = utils::clip_grad_norm_(p, 1);
  CHECK(norm == 5);
  CHECK(utils::clip_grad_norm_({q}, 1) > 4.5);
  CHECK(p.grad().equal(q.grad()));
  utils::clip_grad_value_(p, 0.5);
  utils::clip_grad_value_({q}, 0.5);
  CHECK(p.grad().allclose(tensor({0.5, 0.5})));
  CHECK(p.grad().equal(q.grad()));
}

TEST_CASE("weight_norm's reset_parameters() draws its own weight, and leaves the given layer") {
  const nn::Linear plain(3, 2);
  const Tensor before = plain->weight.detach().clone();
  const auto fc = utils::weight_norm(plain);
  const Tensor direction = fc->weight_v.detach().clone(), x = randn({4, 3});
  fc->reset_parameters();
  CHECK(plain->weight.equal(before));
  CHECK_FALSE(fc->weight_v.equal(direction));
  CHECK(fc(x).allclose(linear(x, fc->weight_v, fc->bias)));
}

TEST_CASE("the weight of a cloned layer is there before its first forward()") {
  const auto fc = utils::weight_norm(nn::Linear(3, 2));
  const auto copy = std::dynamic_pointer_cast<decltype(fc)::ContainedType>(fc->clone());
  REQUIRE(copy);
  CHECK(copy->weight.allclose(fc->weight));
}
