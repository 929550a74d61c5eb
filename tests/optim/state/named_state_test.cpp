// An optimizer's state by the names of its parameters; and LibTorch's words for it.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <sstream>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/optimizers.h"
#include "halftape/tests/support/warnings.h"

using namespace halftape;
using namespace halftape::optim;
using testing::leaf;
using testing::step_with;

namespace {

using Named = OrderedDict<std::string, Tensor>;

Named named(const Tensor& weight, const Tensor& bias) {
  return {{"weight", weight}, {"bias", bias}};
}

}  // namespace

TEST_CASE("a group takes named parameters, keeps their names and copies them along") {
  nn::Linear model(3, 2);
  Adam optimizer({model->named_parameters()}, AdamOptions(0.1));
  CHECK(optimizer.param_groups()[0].names() == std::vector<std::string>{"weight", "bias"});
  CHECK(optimizer.param_groups()[0].params()[0].is_same(model->weight));
  const OptimizerParamGroup with_options(model->named_parameters(), AdamOptions(0.5).clone());
  CHECK(with_options.options().get_lr() == 0.5);
  OptimizerParamGroup copy = with_options;
  copy = with_options;
  CHECK(copy.names() == with_options.names());
}

TEST_CASE("a state by name finds its parameters in another order, and goes on bit for bit") {
  const Tensor w = leaf({2, 3}, 2), b = leaf({2}, -1);
  Adam whole({named(w, b)}, AdamOptions(0.1).amsgrad(true));
  for (int t = 0; t < 3; ++t) step_with(whole, 0.5 + t);
  const NamedOptimizerState saved = whole.named_state_dict();
  CHECK(saved.parameters.at("bias").group == 0);
  CHECK(saved.parameters.at("bias").state.at("exp_avg").shape() == Shape{2});
  const Tensor v = w.detach().clone().requires_grad_(), c = b.detach().clone().requires_grad_();
  Adam resumed({Named{{"bias", c}, {"weight", v}}}, AdamOptions());
  resumed.load_state_dict(saved);
  for (int t = 0; t < 3; ++t) step_with(whole, t - 1), step_with(resumed, t - 1);
  CHECK(testing::same_bits(w.detach(), v.detach()));
  CHECK(testing::same_bits(b.detach(), c.detach()));
}

TEST_CASE("moments of before a model changed its dtype are saved, loaded and go on bit for bit") {
  for (const bool widened : {false, true}) {
    CAPTURE(widened);
    const Dtype from = widened ? kBFloat16 : kFloat32, to = widened ? kFloat32 : kBFloat16;
    nn::Linear model(3, 2), again(3, 2);
    model->to(from);
    again->to(to);
    Adam optimizer(model->parameters(), AdamOptions(0.1)), resumed(again->parameters());
    step_with(optimizer, 0.5);
    model->to(to);
    step_with(optimizer, -1);
    {
      const NoGradGuard no_grad;
      for (size_t i = 0; i < 2; ++i) again->parameters()[i].copy_(model->parameters()[i]);
    }
    resumed.load_state_dict(optimizer.state_dict());
    step_with(optimizer, 2), step_with(resumed, 2);
    for (size_t i = 0; i < 2; ++i)
      CHECK(testing::same_bits(model->parameters()[i].detach(), again->parameters()[i].detach()));
  }
}

TEST_CASE("a state of other names, groups, shapes or dtypes is refused with all that is wrong") {
  const Tensor w = leaf({2, 3}), b = leaf({2});
  SGD optimizer({named(w, b)}, SGDOptions(0.1).momentum(0.5));
  step_with(optimizer, 1);
  const auto good = optimizer.named_state_dict();
  auto bad = good;
  bad.parameters["scale"] = bad.parameters["bias"];
  bad.parameters.erase("bias");
  bad.parameters["weight"].state["momentum_buffer"] = zeros({3}, kFloat64).array();
  bad.parameters["weight"].group = 1;
  bad.groups.push_back(bad.groups[0]);
  for (const char* what :
       {"it has 2 groups, this optimizer 1", "it has no \"bias\"",
        "this optimizer has no \"scale\"",
        "\"weight\" is in its group 1, and in this optimizer's group 0",
        "\"momentum_buffer\" of \"weight\" is float64 [3], expected float32 [2, 3]"})
    CHECK_THROWS_WITH_AS(optimizer.load_state_dict(bad), doctest::Contains(what), Error);
  const auto after = optimizer.named_state_dict();
  for (const auto& [name, parameter] : good.parameters)
    for (const auto& [key, value] : parameter.state)
      CHECK(testing::same_bits(Tensor(after.parameters.at(name).state.at(key)), Tensor(value)));
}

TEST_CASE("a positional state is refused with every parameter that it does not fit") {
  const Tensor w = leaf({2, 3}), b = leaf({2});
  SGD optimizer({w, b}, SGDOptions(0.1).momentum(0.5));
  step_with(optimizer, 1);
  auto bad = optimizer.state_dict();
  std::swap(bad.state[0], bad.state[1]);
  for (const char* what : {"of parameter 0 is float32 [2], expected float32 [2, 3]",
                           "of parameter 1 is float32 [2, 3], expected float32 [2]"})
    CHECK_THROWS_WITH_AS(optimizer.load_state_dict(bad), doctest::Contains(what), Error);
}

TEST_CASE("without names, or with one name twice, there is no state by name") {
  const Tensor a = leaf({2}), b = leaf({2});
  SGD nameless({a}, SGDOptions(0.1));
  CHECK_THROWS_WITH_AS(nameless.named_state_dict(), doctest::Contains("1 parameters and 0 names"),
                       Error);
  SGD twice({OptimizerParamGroup(Named{{"x", a}}), OptimizerParamGroup(Named{{"x", b}})},
            SGDOptions(0.1));
  CHECK_THROWS_WITH_AS(twice.named_state_dict(),
                       doctest::Contains("two parameters are called \"x\""), Error);
  CHECK_THROWS_WITH_AS(twice.load_state_dict(NamedOptimizerState{}), doctest::Contains("\"x\""),
                       Error);
}

TEST_CASE("LibTorch's state() shows what the optimizer remembers, and writes to it") {
  const Tensor p = leaf({2}), stranger = leaf({2});
  Adam optimizer({p}, AdamOptions(0.1));
  auto& state = static_cast<AdamParamState&>(*optimizer.state()[p.unsafeGetTensorImpl()]);
  CHECK(state.step() == 0);
  CHECK_FALSE(state.exp_avg().defined());
  step_with(optimizer, 2);
  CHECK(state.step() == 1);
  CHECK(state.exp_avg().allclose(full({2}, 0.2)));
  state.step(7);
  CHECK(read_double(optimizer.state_of(p).at("step")) == 7);
  state.exp_avg(zeros({2}));
  CHECK(state.exp_avg().equal(zeros({2})));
  const auto saved = optimizer.state_dict();
  step_with(optimizer, 2);
  optimizer.load_state_dict(saved);
  CHECK(state.step() == 7);  // the same view after loading
  std::ostringstream printed;
  printed << static_cast<const void*>(p.impl());
  CHECK(&static_cast<AdamParamState&>(*optimizer.state().at(printed.str())) == &state);
  CHECK(optimizer.state().size() == 1);
  CHECK_THROWS_WITH_AS(optimizer.state().at(stranger.impl()),
                       doctest::Contains("none of its parameters"), Error);
  CHECK_THROWS_WITH_AS(state.exp_avg(Tensor()), doctest::Contains("undefined"), Error);
}

TEST_CASE("options are equal when all their values are") {
  CHECK(AdamOptions(0.1).eps(1e-3) == AdamOptions(0.1).eps(1e-3));
  CHECK_FALSE(AdamOptions(0.1) == AdamOptions(0.2));
}

TEST_CASE("an optimizer of one's own needs its step and the options that it uses") {
  struct MyOptions : OptimizerCloneableOptions<MyOptions> {
    explicit MyOptions(double lr = 1.0) : lr_(lr) {}
    HALFTAPE_ARG(double, lr) = 1.0;
  };
  struct Mine : Optimizer {
    using Optimizer::Optimizer;
    explicit Mine(std::vector<Tensor> params)
        : Optimizer({OptimizerParamGroup(std::move(params))}, std::make_unique<MyOptions>()) {}
    Tensor step(LossClosure closure = nullptr) override { return closure ? closure() : Tensor(); }
  };
  const Tensor p = leaf({2});
  Mine optimizer({p});
  CHECK_FALSE(optimizer.step().defined());
  CHECK(optimizer.step([] { return ones({}); }).item<double>() == 1);
  CHECK_THROWS_WITH_AS(optimizer.param_groups()[0].options().get_lr(),
                       doctest::Contains("how to get_lr(); override it"), Error);
  CHECK_THROWS_WITH_AS(optimizer.state_dict(), doctest::Contains("how to to_map()"), Error);
  p.mutable_grad() = ones({2});
  CHECK_THROWS_WITH_AS(static_cast<Optimizer&>(optimizer).Optimizer::step(),
                       doctest::Contains("neither update() nor step()"), Error);
}

TEST_CASE("parameters may come after the optimizer, and a step without any is refused") {
  const Tensor a = leaf({2}), b = leaf({3});
  SGD optimizer(TensorList{}, SGDOptions(0.5));
  CHECK(optimizer.size() == 0);
  CHECK_THROWS_WITH_AS(optimizer.step(), doctest::Contains("are the modules registered?"), Error);
  optimizer.add_parameters({a, b});
  CHECK(optimizer.size() == 2);
  CHECK_THROWS_WITH_AS(optimizer.add_parameters({a}), doctest::Contains("appears twice"), Error);
  CHECK(optimizer.size() == 2);
  step_with(optimizer, 1);
  CHECK(b.equal(full({3}, 0.5)));
}

TEST_CASE("LibTorch's older words warn where LibTorch's do, and else do not") {
  const Tensor a = leaf({2});
  SGD optimizer({a}, SGDOptions(0.5));
  testing::Warnings warnings;
  optimizer.parameters();
  CHECK(warnings.seen.empty());
  warn_of_old_interface(true);
  optimizer.parameters();
  optimizer.size();
  optimizer.add_parameters({leaf({1})});
  optimizer.zero_grad();
  amp::GradScaler scaler({.init_scale = 2});
  scaler.scale(a.sum()).backward();
  scaler.step(optimizer);
  scaler.update();
  warn_of_old_interface(false);
  REQUIRE(warnings.seen.size() == 3);
  CHECK(warnings.seen[0].find("Optimizer::parameters() will be removed") == 0);
}
