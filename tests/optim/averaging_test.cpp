// Averages of weights against torch.optim.swa_utils: scripts/torch_vectors/averaging.py states the
// same model. Then 16-bit weights, skipped steps, swapping, saving and what is refused.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>
#include <limits>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/vectors.h"

using namespace halftape;
using optim::AveragedModel;
using optim::AveragedModelOptions;

namespace {

struct Model : nn::Module {
  Tensor weight, bias, mean, batches;
  explicit Model(Dtype d = kFloat64)
      : weight(register_parameter("weight", zeros({2, 3}, d))),
        bias(register_parameter("bias", zeros({2}, d))),
        mean(register_buffer("mean", zeros({3}, d))) {}
  void set(int t) {
    const NoGradGuard no_grad;
    int k = 0;
    for (const Tensor& tensor_of : {weight, bias, mean}) {
      std::vector<double> values;
      for (int64_t i = 0; i < tensor_of.numel(); ++i)
        values.push_back(std::sin(0.3 * t + static_cast<double>(i) + k));
      tensor_of.copy_(tensor(values, kFloat64).reshape(tensor_of.sizes()));
      ++k;
    }
  }
};

std::vector<double> values(const OrderedDict<std::string, Tensor>& tensors) {
  std::vector<double> all;
  for (const auto& item : tensors)
    for (const double v : item->to_vector()) all.push_back(v);
  return all;
}

std::vector<Tensor> copies(const nn::Module& model) {
  std::vector<Tensor> all;
  for (const Tensor& t : model.parameters()) all.push_back(t.detach().clone());
  for (const Tensor& t : model.buffers()) all.push_back(t.clone());
  return all;
}

void check_same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) CHECK(testing::same_bits(a[i], b[i]));
}

const std::vector<std::pair<std::string, AveragedModelOptions>>& options() {
  static const std::vector<std::pair<std::string, AveragedModelOptions>> all = {
      {"swa", AveragedModelOptions()},
      {"swa_buffers", AveragedModelOptions().use_buffers(true)},
      {"ema", AveragedModelOptions().decay(0.9)},
      {"ema_buffers", AveragedModelOptions().decay(0.3).use_buffers(true)},
  };
  return all;
}

}  // namespace

static_assert(!std::is_copy_constructible_v<optim::AveragedModel> &&
              std::is_nothrow_move_constructible_v<optim::AveragedModel>);

TEST_CASE("averages and buffers stay with PyTorch's to 1e-12") {
  const testing::Vectors torch("averaging.txt");
  for (const auto& [called, o] : options()) {
    const auto& name = called;  // Clang 14 captures no structured binding
    CAPTURE(name);
    Model model;
    AveragedModel averaged(model, o);
    for (int t = 0; t < 10; ++t) {
      model.set(t);
      averaged.update_parameters(model);
      const auto got = values(averaged.averages());
      const auto& expected = torch[name + "/" + std::to_string(t)];
      REQUIRE(got.size() == expected.size());
      for (size_t i = 0; i < got.size(); ++i) CHECK(std::abs(got[i] - expected[i]) <= 1e-12);
      CHECK(averaged.n_averaged() == t + 1);
    }
  }
}

TEST_CASE("skipped steps are neither averaged nor counted, the first ones included") {
  for (const auto& [called, o] : options()) {
    const auto& name = called;  // Clang 14 captures no structured binding
    CAPTURE(name);
    Model model;
    AveragedModel all(model, o), applied(model, o);
    const Tensor no = zeros({}), yes = full({}, 3.0);
    for (int t = 0; t < 12; ++t) {
      const bool skipped = t < 2 || t % 5 == 3;
      if (!skipped) model.set(t);
      all.update_parameters(model, skipped ? yes : no);
      if (!skipped) applied.update_parameters(model);
      CHECK(all.n_averaged() == applied.n_averaged());
    }
    const auto got = all.state_dict(), expected = applied.state_dict();
    for (const auto& [key, value] : expected) {
      if (o.use_buffers() || key != "module.mean")
        CHECK(testing::same_bits(Tensor(got.at(key)), Tensor(value)));
    }
  }
  Model model;
  AveragedModel averaged(model);
  CHECK_THROWS_WITH_AS(averaged.update_parameters(model, zeros({2})),
                       doctest::Contains("skipped is one number, got [2]"), Error);
}

TEST_CASE("averages of 16-bit weights move by less than the weights' last place") {
  Model model(kBFloat16);
  const NoGradGuard no_grad;
  model.weight.fill_(1);
  AveragedModel averaged(model, AveragedModelOptions().decay(0.999));
  averaged.update_parameters(model);
  model.weight.fill_(1.0078125);  // the next bfloat16
  for (int t = 0; t < 1000; ++t) averaged.update_parameters(model);
  const Tensor& average = averaged.averages()["weight"];
  CHECK(average.dtype() == kFloat32);
  const double expected = 1.0078125 - 0.0078125 * std::pow(0.999, 1000);
  CHECK(std::abs(average[0][0].item<double>() - expected) < 1e-5);
}

TEST_CASE("averages are in the model for a scope, and then its own values again, bit for bit") {
  for (const Dtype d : {kFloat64, kFloat16}) {
    Model model(d);
    AveragedModel averaged(model, AveragedModelOptions().decay(0.5));
    for (int t = 0; t < 4; ++t) model.set(t), averaged.update_parameters(model);
    model.set(7);
    const auto own = copies(model);
    const auto averages = values(averaged.averages());
    for (int twice = 0; twice < 2; ++twice) {
      const auto in = averaged.swapped_in(model);
      CHECK(model.weight.detach().equal(averaged.averages()["weight"].to(d)));
      CHECK_THROWS_WITH_AS(averaged.swap_in(model), doctest::Contains("already"), Error);
      CHECK_THROWS_WITH_AS(averaged.update_parameters(model), doctest::Contains("swap_out() first"),
                           Error);
    }
    check_same(copies(model), own);
    CHECK(values(averaged.averages()) == averages);
    CHECK_THROWS_WITH_AS(averaged.swap_out(model), doctest::Contains("in no model"), Error);
    averaged.copy_to(model);
    CHECK(model.weight.detach().equal(averaged.averages()["weight"].to(d)));
    CHECK(model.weight.requires_grad());
  }
}

TEST_CASE("a buffer that changes while the averages are in the model changes the averages") {
  Model model;
  AveragedModel averaged(model);
  model.set(1);
  averaged.update_parameters(model);
  {
    const auto in = averaged.swapped_in(model);
    model.mean.fill_(42);  // as batch norm's statistics of the averaged weights
  }
  CHECK(averaged.averages()["mean"].equal(full({3}, 42.0, kFloat64)));
  CHECK(model.mean[0].item<double>() == std::sin(0.3 + 2));
}

TEST_CASE("a layer with two names keeps its averages, its statistics and its momentum") {
  nn::BatchNorm1d norm(nn::BatchNormOptions(3).affine(false).momentum(0.25));
  nn::Linear layer(2, 3);
  nn::Module both;
  both.register_module("layer", layer);
  both.register_module("a", norm), both.register_module("b", norm);
  const auto forward = [&](const Tensor& x) { return norm(layer(x)); };
  forward(randn({8, 2}));
  AveragedModel averaged(both);
  averaged.update_parameters(both);
  const std::vector<Tensor> own = copies(both);
  Tensor mean;
  {
    const auto in = averaged.swapped_in(both);
    {
      const optim::FreshStatistics fresh(both);
      forward(randn({16, 2}));
    }
    mean = norm->running_mean.clone();
  }
  CHECK(norm->options.momentum() == 0.25);
  check_same(copies(both), own);
  averaged.copy_to(both);
  CHECK(norm->running_mean.equal(mean));
}

TEST_CASE("an optimizer with master weights trains on after a look at the averages") {
  const auto train = [](bool look) {
    manual_seed(0);
    nn::Linear model(3, 2);
    model->to(kBFloat16);
    optim::SGD optimizer(model->parameters(),
                         optim::SGDOptions(0.01).momentum(0.9).weights(optim::Weights::Master));
    AveragedModel averaged(*model, AveragedModelOptions().decay(0.9));
    for (int t = 0; t < 6; ++t) {
      optimizer.zero_grad();
      model(ones({4, 3}, kBFloat16)).square().sum().backward();
      optimizer.step();
      averaged.update_parameters(*model);
      if (look) const auto in = averaged.swapped_in(*model);
    }
    return copies(*model);
  };
  check_same(train(true), train(false));
}

TEST_CASE("averages that were saved and loaded go on bit for bit") {
  for (const auto& [called, o] : options()) {
    const auto& name = called;  // Clang 14 captures no structured binding
    CAPTURE(name);
    Model model(kFloat16);
    AveragedModel whole(model, o);
    const auto none = whole.state_dict();
    for (int t = 0; t < 3; ++t) model.set(t), whole.update_parameters(model);
    AveragedModel resumed(model, o), fresh(model, o);
    const auto saved = whole.state_dict();
    resumed.load_state_dict(saved);
    CHECK(resumed.n_averaged() == 3);
    for (int t = 3; t < 6; ++t)
      model.set(t), whole.update_parameters(model), resumed.update_parameters(model);
    CHECK(values(whole.averages()) == values(resumed.averages()));
    CHECK(read_int64(saved.at("n_averaged")) == 3);  // a copy
    // After a state without averages the next one is the first.
    whole.load_state_dict(none);
    whole.update_parameters(model), fresh.update_parameters(model);
    CHECK(values(whole.averages()) == values(fresh.averages()));
  }
}

TEST_CASE("states and models that do not fit are refused with all that is wrong") {
  Model model;
  AveragedModel averaged(model);
  const auto good = averaged.state_dict();
  auto bad = good;
  bad.erase("module.bias");
  bad["module.weight"] = zeros({3, 3}, kFloat64).array();
  bad["module.extra"] = zeros({1}).array();
  for (const char* what : {"no \"module.bias\"", "\"module.weight\" is float64 [3, 3], expected",
                           "nothing here is called \"module.extra\""})
    CHECK_THROWS_WITH_AS(averaged.load_state_dict(bad), doctest::Contains(what), Error);
  bad = good;
  for (const int64_t n : {int64_t{-1}, int64_t{1} << 53, std::numeric_limits<int64_t>::max()}) {
    bad["n_averaged"] = full({}, n, kInt64).array();
    CHECK_THROWS_WITH_AS(averaged.load_state_dict(bad),
                         doctest::Contains("expected a number from 0 to 2^53"), Error);
  }
  CHECK(values(averaged.averages()) == std::vector<double>(11, 0));
  nn::Linear other(3, 2);
  for (const char* what : {"it has no \"mean\"", "\"weight\" is float32 [2, 3], expected float64"})
    CHECK_THROWS_WITH_AS(averaged.update_parameters(*other), doctest::Contains(what), Error);
  CHECK_THROWS_WITH_AS(AveragedModel(model, AveragedModelOptions().decay(1.5)),
                       doctest::Contains("decay 1.5 is not in [0, 1]"), Error);
  const nn::Module empty;
  CHECK_THROWS_WITH_AS(AveragedModel{empty}, doctest::Contains("no parameters"), Error);
}

TEST_CASE("only the model that has the averages is given its own values back") {
  nn::Linear model(2, 1), alike(2, 1);
  optim::AveragedModel averaged(*model);
  const Tensor own = model->weight.detach().clone(), others = alike->weight.detach().clone();
  {
    const NoGradGuard no_grad;
    model->weight.mul_(3);
  }
  averaged.swap_in(*model);
  CHECK(model->weight.detach().equal(own));
  CHECK_THROWS_WITH_AS(averaged.swap_out(*alike), doctest::Contains("is this another model?"),
                       Error);
  CHECK(alike->weight.detach().equal(others));
  averaged.swap_out(*model);
  CHECK(model->weight.detach().equal(own * 3));
  averaged.swap_in(*alike);
  averaged.swap_out(*alike);
  CHECK(alike->weight.detach().equal(others));
  // Two heads on one body.
  const nn::Sequential one(nn::Linear(2, 2), model);
  const nn::Sequential other(one->ptr<nn::LinearImpl>(0), alike);
  optim::AveragedModel of_one(*one);
  of_one.swap_in(*one);
  CHECK_THROWS_WITH_AS(of_one.swap_out(*other), doctest::Contains("\"1.weight\" is not the tensor"),
                       Error);
  CHECK(alike->weight.detach().equal(others));
  of_one.swap_out(*one);
}

TEST_CASE("update_bn makes statistics anew, means over the batches, and leaves the rest alone") {
  const nn::Sequential model(
      nn::Linear(2, 3), nn::BatchNorm1d(nn::BatchNormOptions(3).momentum(0.3)), nn::BatchNorm1d(3));
  auto& first = model->at<nn::BatchNorm1dImpl>(1);
  const auto weights = model->parameters();
  TensorList before;
  for (const Tensor& w : weights) before.push_back(w.detach().clone());
  model->forward(randn({4, 2}));  // statistics to forget
  model->eval();

  const std::vector<Tensor> batches{randn({8, 2}), randn({8, 2}), randn({4, 2})};
  optim::update_bn(batches, model);
  Tensor mean = zeros({3}), var = zeros({3});
  for (const Tensor& x : batches) {
    const Tensor y = model->at<nn::LinearImpl>(0).forward(x).detach();
    mean += y.mean(Dims{0}) / 3;
    var += y.var(Dims{0}) / 3;
  }
  CHECK(first.running_mean.allclose(mean, 1e-5, 1e-6));
  CHECK(first.running_var.allclose(var, 1e-5, 1e-6));
  CHECK(first.num_batches_tracked.item<int64_t>() == 3);
  CHECK(first.options.momentum() == 0.3);
  CHECK(model->at<nn::BatchNorm1dImpl>(2).options.momentum() == 0.1);
  CHECK_FALSE(model->is_training());
  for (size_t i = 0; i < weights.size(); ++i) CHECK(weights[i].equal(before[i]));
}

TEST_CASE("update_bn of a model without batch norms reads no data") {
  const nn::Sequential model(nn::Linear(2, 3));
  const std::vector<Tensor> batches{randn({8, 5})};  // which does not fit
  model[0]->eval();
  CHECK_NOTHROW(optim::update_bn(batches, model));
  CHECK_FALSE(model[0]->is_training());  // nor does it change a mode
  CHECK(model->is_training());
}

TEST_CASE("whole numbers among the parameters are averaged, too, as PyTorch does") {
  struct Net : nn::Module {
    Tensor a = register_parameter("a", ones({2}));
    Tensor n = register_parameter("n", tensor({1, 2}), false);
  } net;
  AveragedModel averaged(net, AveragedModelOptions().decay(0.5));
  averaged.update_parameters(net);
  const NoGradGuard no_grad;
  net.a.fill_(3);
  net.n.fill_(10);
  averaged.update_parameters(net);
  averaged.copy_to(net);
  CHECK(net.a.equal(full({2}, 2.0)));
  CHECK(net.n.equal(tensor({5, 6})));
}
