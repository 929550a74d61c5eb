// FusedMLP: a Sequential of linear layers in other clothes.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <sstream>
#include <vector>

#include "halftape/tests/support/message.h"

using namespace halftape;
using doctest::Contains;
namespace F = halftape::nn::functional;

namespace {

/// The Sequential that a FusedMLP stands for, with its parameters' values.
nn::Sequential sequential_of(const nn::FusedMLP& model, const nn::AnyModule& activation) {
  nn::Sequential net;
  for (size_t l = 0; l < model->linears.size(); ++l) {
    const nn::LinearOptions& o = model->linears[l]->options;
    net->push_back(nn::Linear(nn::LinearOptions(o.in_features(), o.out_features()).bias(o.bias())));
    if (l + 1 < model->linears.size()) net->push_back(activation);
  }
  const NoGradGuard no_grad;
  const auto from = model->named_parameters(), to = net->named_parameters();
  CHECK(from.keys() == to.keys());
  for (const auto& p : to) Tensor(p.value()).copy_(from[p.key()]);
  return net;
}

}  // namespace

TEST_CASE("FusedMLP computes what the Sequential does whose parameters' names and values it has") {
  manual_seed(1);
  const std::pair<Activation, nn::AnyModule> activations[] = {
      {Activation::None, nn::AnyModule(nn::Identity())},
      {Activation::Relu, nn::AnyModule(nn::ReLU())},
      {Activation::Gelu, nn::AnyModule(nn::GELU(nn::GELUOptions().approximate("tanh")))},
      {Activation::Silu, nn::AnyModule(nn::SiLU())},
      {Activation::Tanh, nn::AnyModule(nn::Tanh())},
      {Activation::Sigmoid, nn::AnyModule(nn::Sigmoid())}};
  const Tensor x = randn({9, 5}), classes = randint(0, 3, {9}, kInt64), values = randn({9, 3});
  for (const auto& pair : activations)
    for (const bool bias : {false, true}) {
      const Activation activation = pair.first;
      CAPTURE(static_cast<int>(activation));
      const nn::FusedMLP model(nn::FusedMLPOptions(5, 8, 2, 3).activation(activation).bias(bias));
      const nn::Sequential net = sequential_of(model, pair.second);
      CHECK(allclose(model->forward(x), net->forward(x), 1e-5, 1e-6));
      const Tensor right = F::cross_entropy(net->forward(x), classes);
      const Tensor loss = model->loss(x, classes);
      CHECK(allclose(loss, right, 1e-5, 1e-6));
      CHECK(allclose(model->loss(x, values), F::mse_loss(net->forward(x), values), 1e-5, 1e-6));
      right.backward();
      loss.backward();
      const auto wanted = net->named_parameters();
      for (const auto& p : model->named_parameters())
        CHECK(allclose(p.value().grad(), wanted[p.key()].grad(), 1e-4, 1e-6));
    }
}

TEST_CASE("a Sequential's loss is that of what it computes, whatever its parts are") {
  manual_seed(5);
  const Tensor x = randn({9, 5}), values = randn({9, 3});
  const Tensor classes = randint(0, 3, {9}, kInt64);
  const auto gelu = [](const char* form) { return nn::GELU(nn::GELUOptions().approximate(form)); };
  using Net = nn::Sequential;
  const Net nets[] = {
      Net(nn::Linear(5, 8), nn::ReLU(), nn::Linear(8, 3)), Net(nn::Linear(5, 3)),
      Net(nn::Linear(5, 8), nn::Tanh(), nn::Linear(8, 8), nn::Tanh(), nn::Linear(8, 3)),
      Net(nn::Linear(nn::LinearOptions(5, 8).bias(false)), gelu("tanh"), nn::Linear(8, 3)),
      // These are no MLP of the kind.
      Net(nn::Linear(5, 8), gelu("none"), nn::Linear(8, 3)),
      Net(nn::Linear(5, 8), nn::Tanh(), nn::Linear(8, 8), nn::ReLU(), nn::Linear(8, 3)),
      Net(nn::Linear(5, 8), nn::Linear(8, 3)),
      Net(nn::Linear(5, 8), nn::ReLU(), nn::Linear(8, 3), nn::SiLU()),
      Net(nn::Flatten(), nn::Linear(5, 3))};
  for (const Net& net : nets) {
    for (const Tensor& target : {classes, values}) {
      CAPTURE(*net);
      net->zero_grad();
      const Tensor y = net->forward(x);
      const Tensor right =
          target.dtype() == kInt64 ? F::cross_entropy(y, target) : F::mse_loss(y, target);
      right.backward();
      std::vector<Tensor> wanted;
      for (const Tensor& p : net->parameters()) wanted.push_back(p.grad().clone());
      net->zero_grad();
      const Tensor loss = net->loss(x, target);
      loss.backward();
      CHECK(allclose(loss, right, 1e-5, 1e-6));
      for (size_t i = 0; i < wanted.size(); ++i)
        CHECK(allclose(net->parameters()[i].grad(), wanted[i], 1e-4, 1e-6));
      // In halves the small networks' outputs are not rounded.
      const amp::autocast region(x.device().type(), kBFloat16);
      CHECK(allclose(net->loss(x, target), right, 0.05, 0.05));
    }
  }
  // Rows of rows; every class counts, also one that cross_entropy() would ignore.
  CHECK(allclose(nets[0]->loss(x.reshape({3, 3, 5}), classes.reshape({3, 3})),
                 nets[0]->loss(x, classes), 1e-6, 1e-6));
  for (const Net& net : {nets[0], nets[5]})
    CHECK(testing::message([&] { (void)net->loss(x, full_like(classes, -100)); }) != "");
}

TEST_CASE("a FusedMLP prints its layers, and its clone has parameters of its own") {
  const nn::FusedMLP model(nn::FusedMLPOptions(2, 8, 1, 3).activation(Activation::Silu));
  std::ostringstream text;
  text << *model;
  CHECK(text.str() ==
        "halftape::nn::FusedMLP(in_features=2, hidden_features=8, layers=1, out_features=3, "
        "activation=silu, bias=true)(\n"
        "  (0): halftape::nn::Linear(in_features=2, out_features=8, bias=true)\n"
        "  (2): halftape::nn::Linear(in_features=8, out_features=3, bias=true)\n"
        ")");
  const auto copy = std::dynamic_pointer_cast<nn::FusedMLPImpl>(model->clone());
  const Tensor x = randn({4, 2});
  CHECK(equal(copy->forward(x), model->forward(x)));
  {
    const NoGradGuard no_grad;
    copy->linears[0]->weight.zero_();
  }
  CHECK(!equal(copy->forward(x), model->forward(x)));
  CHECK(copy->named_parameters().keys() == model->named_parameters().keys());
  CHECK_THROWS_WITH_AS(nn::FusedMLP(2, 8, -1, 3), Contains("FusedMLP: layers -1 is negative"),
                       Error);
}

TEST_CASE("a FusedMLP learns in float16 with a GradScaler") {
  manual_seed(2);
  const nn::FusedMLP model(2, 24, 2, 2);
  optim::AdamW optimizer(model->parameters(), optim::AdamWOptions(1e-2));
  amp::GradScaler scaler;
  const Tensor x = randn({128, 2}), y = (x.select(1, 0) * x.select(1, 1) > 0).to(kInt64);
  float first = 0, last = 0;
  for (int i = 0; i < 60; ++i) {
    optimizer.zero_grad();
    Tensor loss;
    {
      const amp::autocast region(x.device().type(), kFloat16);
      loss = model->loss(x, y, scaler.factor());
    }
    scaler.scale(loss).backward();
    scaler.step(optimizer);
    scaler.update();
    last = loss.item<float>();
    if (i == 0) first = last;
  }
  CHECK(first > 0.6f);
  CHECK(last < 0.25f);
}
