// What an optimizer saves: a run that loads it goes on bit for bit, every option survives, and a
// state that does not fit changes nothing.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/optimizers.h"

using namespace halftape;
using optim::Adam;
using optim::AdamOptions;
using optim::OptimizerParamGroup;
using optim::SGD;
using optim::SGDOptions;
using testing::give_gradients;
using testing::leaf;

namespace {

using Groups = std::vector<OptimizerParamGroup>;

OptimizerParamGroup group(std::vector<Tensor> params) {
  return OptimizerParamGroup(std::move(params));
}

}  // namespace

TEST_CASE("a saved state is a copy: later steps do not reach it") {
  const Tensor a = leaf({2});
  SGD optimizer({a}, SGDOptions(0.5).momentum(0.5));
  testing::step_with(optimizer, 1);
  const auto saved = optimizer.state_dict();
  optimizer.step();
  CHECK(Tensor(saved.state[0].at("momentum_buffer")).equal(ones({2})));
  const void* bytes = optimizer.state_of(a).at("momentum_buffer").raw();
  optimizer.load_state_dict(saved);
  CHECK(optimizer.state_of(a).at("momentum_buffer").raw() == bytes);  // a Graph writes there
  optimizer.step();
  CHECK(Tensor(saved.state[0].at("momentum_buffer")).equal(ones({2})));
}

TEST_CASE("a run that was saved and loaded goes on bit for bit, options included") {
  auto gradient = [](const Tensor& p, int t) {
    const NoGradGuard no_grad;
    p.mutable_grad() = p.detach() * 0.5 + std::sin(t);
  };
  const auto check = [&](const auto& make) {
    const Tensor a = leaf({3}, 2), b = leaf({2}, -1);
    const auto whole = make(Groups{group({a}), group({b})});
    whole->param_groups()[1].options().set_lr(0.01);
    auto step = [&](optim::Optimizer& o, int t) {
      for (const Tensor& p : o.parameters()) gradient(p, t);
      o.step();
    };
    for (int t = 0; t < 5; ++t) step(*whole, t);
    const Tensor c = a.detach().clone().requires_grad_(), d = b.detach().clone().requires_grad_();
    const auto resumed = make(Groups{group({c}), group({d})});
    resumed->load_state_dict(whole->state_dict());
    CHECK(resumed->param_groups()[1].options().get_lr() == 0.01);
    for (int t = 5; t < 10; ++t) step(*whole, t), step(*resumed, t);
    CHECK(testing::same_bits(a.detach(), c.detach()));
    CHECK(testing::same_bits(b.detach(), d.detach()));
  };
  for (const testing::OptimizerKind& kind : testing::rule_optimizers()) {
    CAPTURE(kind.name);
    check([&](const Groups& g) { return kind.make_groups(g, {}); });
    check(kind.make_defaults);
  }
}

TEST_CASE("a resumed run follows a weight that was written before it was saved") {
  for (const optim::Weights weights : {optim::Weights::Master, optim::Weights::Kahan}) {
    CAPTURE(static_cast<int>(weights));
    const auto make = [&](const Tensor& p) {
      return std::make_unique<SGD>(std::vector<Tensor>{p}, SGDOptions(0.25).weights(weights));
    };
    const Tensor p = leaf({2}, 256, kBFloat16);
    const auto whole = make(p);
    testing::step_with(*whole, -1);  // 256.25, of which the weight itself has only the 256
    {
      const NoGradGuard no_grad;
      p.slice(0, 0, 1).fill_(0.5);
    }
    const Tensor q = p.detach().clone().requires_grad_();
    const auto resumed = make(q);
    resumed->load_state_dict(whole->state_dict());
    testing::step_with(*whole, -1), testing::step_with(*resumed, -1);
    CHECK(q.to_vector() == std::vector{0.75, 256.0});
    CHECK(testing::same_bits(q.detach(), p.detach()));
    for (const auto& [key, value] : whole->state_of(p))
      CHECK(testing::same_bits(Tensor(resumed->state_of(q).at(key)), Tensor(value)));
  }
}

TEST_CASE("a state that is loaded by the optimizer that saved it follows the weight, too") {
  for (const optim::Weights weights : {optim::Weights::Master, optim::Weights::Kahan}) {
    const auto make = [&](const Tensor& p) {
      return std::make_unique<SGD>(std::vector<Tensor>{p}, SGDOptions(1).weights(weights));
    };
    const Tensor p = leaf({2}, 1, kBFloat16);
    const auto optimizer = make(p);
    testing::step_with(*optimizer, -0x1p-10);
    const auto saved = optimizer->state_dict();
    for (int t = 0; t < 5; ++t) testing::step_with(*optimizer, -1);
    const Tensor q = p.detach().clone().requires_grad_();
    const auto other = make(q);
    other->load_state_dict(saved);
    optimizer->load_state_dict(saved);
    testing::step_with(*optimizer, -0x1p-10), testing::step_with(*other, -0x1p-10);
    CHECK(p.to_vector() == std::vector{6.0, 6.0});
    CHECK(testing::same_bits(p.detach(), q.detach()));
  }
}

TEST_CASE("a weight that is set to other bytes goes on from these, whatever address they have") {
  const SGDOptions options = SGDOptions(0x1p-5).weights(optim::Weights::Master);
  const Tensor p = leaf({64}, 1024, kBFloat16);
  SGD optimizer({p}, options);
  testing::step_with(optimizer, 1);
  // The buffer of the first weight goes, and that of another tensor takes its place and version.
  for (int i = 0; i < 4; ++i) {
    p.set_data(full({64}, 5.0, kBFloat16));
    const Tensor next = full({64}, 7.0, kBFloat16);
    for (int writes = 0; writes < i; ++writes) next.mul_(1);
    p.set_data(next);
    const Tensor fresh = leaf({64}, 7, kBFloat16);
    SGD expected({fresh}, options);
    testing::step_with(optimizer, 1), testing::step_with(expected, 1);
    CHECK(testing::same_bits(p.detach(), fresh.detach()));
  }
}

TEST_CASE("a resumed run without writes keeps every master and remainder as it was saved") {
  for (const optim::Weights weights : {optim::Weights::Master, optim::Weights::Kahan})
    for (const Dtype d : {kFloat16, kBFloat16}) {
      CAPTURE(static_cast<int>(weights));
      CAPTURE(d);
      manual_seed(4);
      // Subnormal and large numbers, powers of two, and zeros.
      const Tensor start = cat({randn({64}) * 1e-6, randn({64}), randn({64}) * 1e4,
                                exp2(arange(-24, 16, kFloat32)), zeros({2})})
                               .to(d);
      const Tensor g = (randn(start.sizes()) * start.to(kFloat32) * 0.25).to(d);
      const auto make = [&](const Tensor& p) {
        return std::make_unique<SGD>(std::vector<Tensor>{p},
                                     SGDOptions(0.01).momentum(0.9).weights(weights));
      };
      const auto step = [&](SGD& optimizer, const Tensor& p) {
        p.mutable_grad() = g;
        optimizer.step();
      };
      const Tensor p = start.clone().requires_grad_();
      const auto whole = make(p);
      for (int t = 0; t < 3; ++t) step(*whole, p);
      const Tensor q = p.detach().clone().requires_grad_();
      const auto resumed = make(q);
      resumed->load_state_dict(whole->state_dict());
      step(*whole, p), step(*resumed, q);
      CHECK(testing::same_bits(q.detach(), p.detach()));
      for (const auto& [key, value] : whole->state_of(p))
        CHECK(testing::same_bits(Tensor(resumed->state_of(q).at(key)), Tensor(value)));
    }
}

TEST_CASE("every option survives saving and loading") {
  const Tensor a = leaf({1});
  Adam one({a}, AdamOptions(0.1)
                    .betas(AdamOptions::Betas(0.5, 0.25))
                    .eps(1e-3)
                    .weight_decay(0.2)
                    .amsgrad(true)
                    .maximize(true));
  Adam two({a}, AdamOptions());
  two.load_state_dict(one.state_dict());
  CHECK(two.param_groups()[0].options().to_map() == one.param_groups()[0].options().to_map());
  CHECK(static_cast<AdamOptions&>(two.param_groups()[0].options()).betas() ==
        AdamOptions::Betas(0.5, 0.25));
  SGD three({a}, SGDOptions(0.1).momentum(0.5).weight_decay(0.2).nesterov(true).maximize(true));
  SGD four({a}, SGDOptions());
  four.load_state_dict(three.state_dict());
  CHECK(four.param_groups()[0].options().to_map() == three.param_groups()[0].options().to_map());
  const auto kept = [](const optim::OptimizerOptions& set, optim::OptimizerOptions& other) {
    CHECK(set.to_map() != other.to_map());
    other.from_map(set.to_map());
    CHECK(set.to_map() == other.to_map());
  };
  optim::RMSpropOptions rmsprop;
  kept(optim::RMSpropOptions(0.1)
           .alpha(0.5)
           .eps(1e-3)
           .weight_decay(0.2)
           .momentum(0.3)
           .centered(true)
           .maximize(true)
           .weights(optim::Weights::Kahan),
       rmsprop);
  CHECK((rmsprop.alpha() == 0.5 && rmsprop.momentum() == 0.3 && rmsprop.centered()));
  optim::AdagradOptions adagrad;
  kept(optim::AdagradOptions(0.1)
           .lr_decay(0.5)
           .weight_decay(0.2)
           .initial_accumulator_value(3)
           .eps(1e-3)
           .maximize(true)
           .weights(optim::Weights::Kahan),
       adagrad);
  CHECK((adagrad.lr_decay() == 0.5 && adagrad.initial_accumulator_value() == 3));
  optim::LionOptions lion;
  kept(optim::LionOptions(0.1)
           .betas({0.5, 0.25})
           .weight_decay(0.2)
           .maximize(true)
           .weights(optim::Weights::Kahan),
       lion);
  CHECK(lion.betas() == optim::LionOptions::Betas(0.5, 0.25));
}

TEST_CASE("a state that does not fit is refused by what is wrong, and changes nothing") {
  const Tensor a = leaf({2}), b = leaf({3});
  SGD optimizer(Groups{group({a, b})}, SGDOptions(0.5).momentum(0.5));
  testing::step_with(optimizer, 1);
  const auto good = optimizer.state_dict();
  auto refused = [&](const char* what, auto change) {
    CAPTURE(what);
    auto state = good;
    change(state);
    CHECK_THROWS_WITH_AS(optimizer.load_state_dict(state), doctest::Contains(what), Error);
    const auto after = optimizer.state_dict();
    CHECK(after.groups == good.groups);
    for (size_t i = 0; i < good.state.size(); ++i)
      for (const auto& [key, value] : good.state[i])
        CHECK(testing::same_bits(Tensor(after.state[i].at(key)), Tensor(value)));
  };
  refused("2 groups", [](auto& s) { s.groups.push_back(s.groups[0]); });
  refused("3 parameters", [](auto& s) { s.state.push_back(s.state[0]); });
  refused("momentum_buffer", [](auto& s) { std::swap(s.state[0], s.state[1]); });
  refused("\"momentum\"", [](auto& s) { s.groups[0].erase("momentum"); });
  refused("\"lr\" is -1", [](auto& s) { s.groups[0]["lr"] = -1; });
  refused("\"initial_lr\" of group 0 is -1", [](auto& s) { s.groups[0]["initial_lr"] = -1; });
  CHECK_THROWS_WITH_AS(Adam({a, b}, AdamOptions()).load_state_dict(good),
                       doctest::Contains("\"eps\""), Error);
}

TEST_CASE("a state with a name too many, too few, or without bytes is refused by every optimizer") {
  for (const testing::OptimizerKind& kind : testing::optimizers()) {
    if (kind.name == "SGD") continue;  // keeps no state
    CAPTURE(kind.name);
    const Tensor p = leaf({3}, 2);
    const auto optimizer = kind.make({p});
    optimizer->step([&] {
      optimizer->zero_grad();
      const Tensor loss = (p * p).sum();
      loss.backward();
      return loss;
    });
    const auto good = optimizer->state_dict();
    const auto refused = [&](const optim::OptimizerState& bad, const std::string& what) {
      CHECK_THROWS_WITH_AS(optimizer->load_state_dict(bad), doctest::Contains(what.c_str()), Error);
      const auto after = optimizer->state_dict();
      CHECK(after.groups == good.groups);
      REQUIRE(after.state[0].size() == good.state[0].size());
      for (const auto& [key, value] : good.state[0])
        CHECK(testing::same_bits(Tensor(after.state[0].at(key)), Tensor(value)));
    };
    for (const auto& [key, value] : good.state[0]) {
      auto bad = good;
      bad.state[0][key] = Array();
      refused(bad, "\"" + key + "\" of parameter 0 is undefined, expected ");
      bad = good;
      bad.state[0].erase(key);
      const bool switched = key == "max_exp_avg_sq" || key == "grad_avg" ||
                            (key == "momentum_buffer" && kind.class_name() == "RMSprop");
      if (switched || good.state[0].size() == 1) continue;  // may come with a later option
      CHECK_THROWS_WITH_AS(optimizer->load_state_dict(bad), doctest::Contains("of parameter 0"),
                           Error);
    }
    auto bad = good;
    bad.state[0]["velocity"] = zeros({3}).array();
    refused(bad, "nothing here is called \"velocity\" of parameter 0");
    CHECK_NOTHROW(optimizer->load_state_dict(good));
  }
}

TEST_CASE("a state that was kept with other weights does not fit, whichever they are") {
  using optim::Weights;
  constexpr Weights all[] = {Weights::Plain, Weights::Master, Weights::Stochastic, Weights::Kahan};
  const auto trained = [](Weights weights) {
    const Tensor p = ones({3}, TensorOptions(kBFloat16).requires_grad(true));
    auto optimizer = testing::optimizer_kind("Adam").make({p}, weights);
    testing::step_with(*optimizer, p, 1);
    return optimizer;
  };
  for (const Weights from : all)
    for (const Weights to : all) {
      if (from == to) continue;
      const auto optimizer = trained(to);
      auto saved = trained(from)->state_dict();
      saved.groups = optimizer->state_dict().groups;
      CHECK_THROWS_AS(optimizer->load_state_dict(saved), Error);
      CHECK_NOTHROW(testing::step_with(*optimizer, optimizer->parameters()[0], 1));
    }
}

TEST_CASE("an option that was switched after the last step does not stand in a state's way") {
  const Tensor p = leaf({3}), q = leaf({3});
  Adam one({p}, AdamOptions(0.1)), two({q}, AdamOptions(0.1));
  testing::step_with(one, p, 1);
  static_cast<AdamOptions&>(one.param_groups()[0].options()).amsgrad(true);
  two.load_state_dict(one.state_dict());
  testing::step_with(one, p, 1), testing::step_with(two, q, 1);
  CHECK(two.state_of(q).count("max_exp_avg_sq") == 1);
  static_cast<AdamOptions&>(two.param_groups()[0].options()).amsgrad(false);
  CHECK_NOTHROW(one.load_state_dict(two.state_dict()));
  SGD plain({p}, SGDOptions(0.1)), heavy({q}, SGDOptions(0.1).momentum(0.5));
  testing::step_with(heavy, q, 1);
  static_cast<SGDOptions&>(heavy.param_groups()[0].options()).momentum(0);
  CHECK_NOTHROW(plain.load_state_dict(heavy.state_dict()));
}

TEST_CASE("a saved count of steps is a whole number") {
  const Tensor p = leaf({2});
  Adam optimizer({p}, AdamOptions(0.1));
  testing::step_with(optimizer, 1);
  const auto good = optimizer.state_dict();
  for (const double n : {-5.0, 0.5, 1e30, double{NAN}, double{INFINITY}}) {
    auto bad = good;
    bad.state[0]["step"] = full({}, n, kFloat32).array();
    CHECK_THROWS_WITH_AS(optimizer.load_state_dict(bad),
                         doctest::Contains("expected a whole number from 0 on"), Error);
  }
  optimizer.load_state_dict(good);
}

TEST_CASE("a 16-bit weight that became the other kind saves a state that can be loaded") {
  for (const Dtype from : {kFloat16, kBFloat16}) {
    const Dtype to = from == kFloat16 ? kBFloat16 : kFloat16;
    const auto make = [](const Tensor& p) {
      return SGD({p}, SGDOptions(0.01).momentum(0.5).weights(optim::Weights::Kahan));
    };
    const Tensor p = ones({2}, TensorOptions(from).requires_grad(true));
    SGD one = make(p);
    testing::step_with(one, p, 1);
    p.set_data(p.detach().to(to));
    testing::step_with(one, p, 1);
    const Tensor q = p.detach().clone().requires_grad_();
    SGD two = make(q);
    two.load_state_dict(one.state_dict());
    for (int i = 0; i < 3; ++i) testing::step_with(one, p, 1), testing::step_with(two, q, 1);
    CHECK(p.detach().equal(q.detach()));
  }
}

TEST_CASE("a saved moment of another dtype does not fit") {
  const Tensor a = leaf({2});
  SGD optimizer({a}, SGDOptions(0.5).momentum(0.5));
  testing::step_with(optimizer, 1);
  auto state = optimizer.state_dict();
  state.state[0]["momentum_buffer"] = ones({2}, kInt64).array();
  CHECK_THROWS_AS(optimizer.load_state_dict(state), Error);
}

TEST_CASE("a saved moment of one element does not fit a larger parameter") {
  const Tensor a = leaf({3});
  SGD optimizer({a}, SGDOptions(0.5).momentum(0.5));
  testing::step_with(optimizer, 1);
  auto state = optimizer.state_dict();
  state.state[0]["momentum_buffer"] = ones({1}).array();
  CHECK_THROWS_WITH_AS(optimizer.load_state_dict(state), doctest::Contains("momentum_buffer"),
                       Error);
}

TEST_CASE("a refused state is told with its options and its tensors, and by their group") {
  const Tensor a = leaf({3}), b = leaf({2});
  SGD optimizer({{{a}, SGDOptions(0.5).momentum(0.5).clone()}, {{b}, SGDOptions(0.1).clone()}});
  testing::step_with(optimizer, 1);
  auto state = optimizer.state_dict();
  state.groups[1]["lr"] = -1;
  state.state[0]["momentum_buffer"] = ones({1}).array();
  try {
    optimizer.load_state_dict(state);
    FAIL("it was taken");
  } catch (const Error& e) {
    const std::string what = e.what();
    CHECK(what.find("\"momentum_buffer\" of parameter 0") != std::string::npos);
    CHECK(what.find("group 1: ") != std::string::npos);
    CHECK(what.find("\"lr\" is -1") != std::string::npos);
  }
  for (const double weights : {-1.0, 4.0, 300.0}) {  // which no enumerator has
    state = optimizer.state_dict();
    state.groups[0]["weights"] = weights;
    CHECK_THROWS_WITH_AS(optimizer.load_state_dict(state), doctest::Contains("\"weights\" is"),
                         Error);
  }
}

TEST_CASE("a state that is loaded over one which a graph has saved is told in backward") {
  const Tensor a = leaf({3}), w = leaf({3});
  SGD optimizer({a}, SGDOptions(0.5).momentum(0.5));
  testing::step_with(optimizer, 1);
  const auto saved = optimizer.state_dict();
  const Tensor y = (Tensor(optimizer.state_of(a).at("momentum_buffer")) * w).sum();
  optimizer.load_state_dict(saved);
  CHECK_THROWS_WITH_AS(y.backward(), doctest::Contains("changed in place"), Error);
}

TEST_CASE("a reference to options stays theirs when a state is loaded") {
  const auto check = [](auto optimizer) {
    optim::OptimizerOptions& options = optimizer.param_groups()[0].options();
    optimizer.load_state_dict(optimizer.state_dict());
    CHECK(&optimizer.param_groups()[0].options() == &options);
  };
  const Tensor p = ones({2}).requires_grad_();
  check(optim::SGD({p}, optim::SGDOptions(0.1)));
  check(optim::AdamW({p}, optim::AdamWOptions(0.1)));
  check(optim::AsyncOptimizer(
      std::make_unique<optim::Adam>(std::vector<Tensor>{p}, optim::AdamOptions(0.1))));
}
