// What all optimizers share: groups and their options, state, zero_grad and closures; nothing
// changes when something is refused. tests/support/optimizers.h lists them all.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

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
OptimizerParamGroup group(std::vector<Tensor> params, const SGDOptions& options) {
  return OptimizerParamGroup(std::move(params), options.clone());
}

/// Forgets what was learnt, on the host alone.
class UsersOwn : public optim::Optimizer {
 public:
  explicit UsersOwn(std::vector<Tensor> params)
      : Optimizer(Groups{group(std::move(params))}, SGDOptions(0.5).clone()) {}

 protected:
  void update(const optim::OptimizerOptions& options, const std::vector<Tensor>& params,
              const StepControl&) override {
    for (Tensor p : params) p.sub_(p.grad() * options.get_lr());
  }
};

/// Says nothing of its steps.
struct WithoutUpdate : optim::Optimizer {
  WithoutUpdate(const Tensor& p, std::unique_ptr<optim::OptimizerOptions> defaults)
      : Optimizer(Groups{group({p})}, std::move(defaults)) {}
};

}  // namespace

TEST_CASE("groups use their own options, and the defaults where they have none") {
  const Tensor a = leaf({2}), b = leaf({3}), c = leaf({1});
  SGD optimizer(Groups{group({a}), group({b}, SGDOptions(0.5)), group({c})}, SGDOptions(0.25));
  testing::step_with(optimizer, 1);
  CHECK(a.equal(full({2}, 0.75)));
  CHECK(b.equal(full({3}, 0.5)));
  CHECK(c.equal(full({1}, 0.75)));
  CHECK(optimizer.param_groups().size() == 3);
  const auto all = optimizer.parameters();
  REQUIRE(all.size() == 3);
  CHECK(all[0].is_same(a));
  CHECK(all[1].is_same(b));
  CHECK(all[2].is_same(c));
}

TEST_CASE("set_lr on one group counts from the next step and for that group alone") {
  const Tensor a = leaf({2}), b = leaf({2});
  SGD optimizer(Groups{group({a}), group({b})}, SGDOptions(0.25));
  optimizer.param_groups()[1].options().set_lr(0.125);
  CHECK(optimizer.param_groups()[1].options().get_lr() == 0.125);
  testing::step_with(optimizer, 1);
  CHECK(a.equal(full({2}, 0.75)));
  CHECK(b.equal(full({2}, 0.875)));
}

TEST_CASE("changed defaults hold for groups added later, not for those that are there") {
  const Tensor a = leaf({1}), b = leaf({1});
  SGD optimizer({a}, SGDOptions(0.5));
  optimizer.defaults().set_lr(0.25);
  optimizer.add_param_group(group({b}));
  testing::step_with(optimizer, 1);
  CHECK(a.item() == 0.5);
  CHECK(b.item() == 0.75);
}

TEST_CASE("a group that was added is a copy, and its options are not shared") {
  const Tensor a = leaf({1}), b = leaf({1});
  OptimizerParamGroup mine = group({a}, SGDOptions(0.5));
  OptimizerParamGroup copy = mine;
  copy.options().set_lr(7);
  CHECK(mine.options().get_lr() == 0.5);
  SGD optimizer(Groups{mine}, SGDOptions(1));
  mine.options().set_lr(9);
  CHECK(optimizer.param_groups()[0].options().get_lr() == 0.5);
  copy = group({b});
  CHECK_FALSE(copy.has_options());
}

TEST_CASE("a parameter belongs to one group, once") {
  const Tensor a = leaf({2}), b = leaf({3});
  CHECK_THROWS_WITH_AS(SGD({a, b, a}, SGDOptions()), doctest::Contains("[2] appears twice"), Error);
  CHECK_THROWS_WITH_AS(SGD(Groups{group({a}), group({b, a})}), doctest::Contains("appears twice"),
                       Error);
  SGD optimizer({a}, SGDOptions(0.5));
  CHECK_THROWS_WITH_AS(optimizer.add_param_group(group({b, a})), doctest::Contains("appears twice"),
                       Error);
  CHECK(optimizer.param_groups().size() == 1);
  CHECK_NOTHROW(optimizer.add_param_group(group({b})));
  CHECK_THROWS_AS(optimizer.add_param_group(group({b})), Error);
  CHECK(optimizer.param_groups().size() == 2);
}

TEST_CASE("what cannot be trained is refused when the group is made") {
  const Tensor a = leaf({2});
  CHECK_THROWS_WITH_AS(SGD({a * 2}, SGDOptions()),
                       "optimizer: can't optimize a non-leaf tensor ([2], made by an operation)",
                       Error);
  CHECK_THROWS_WITH_AS(SGD({a, Tensor()}, SGDOptions()), doctest::Contains("undefined"), Error);
  CHECK_THROWS_WITH_AS(SGD({zeros({2}, kInt64)}, SGDOptions()),
                       doctest::Contains("not floating-point"), Error);
  CHECK_THROWS_WITH_AS(SGD(Groups{}), "optimizer: no parameters were given, nor a group for them",
                       Error);
  SGD optimizer({a}, SGDOptions());
  CHECK_THROWS_WITH_AS(optimizer.add_param_group(group({leaf({1})}, SGDOptions(-1))),
                       doctest::Contains("learning rate: -1"), Error);
  CHECK(optimizer.param_groups().size() == 1);
  const Tensor overlapping = zeros({1}).expand({4}).detach().requires_grad_();
  CHECK_THROWS_WITH_AS(SGD({overlapping}, SGDOptions()),
                       doctest::Contains("several elements are one place in memory"), Error);
}

TEST_CASE("options of another optimizer, or none, are refused before anything is read as them") {
  const Tensor a = leaf({2}), b = leaf({3});
  const auto adams = [](const Tensor& p) {
    return OptimizerParamGroup({p}, AdamOptions().clone());
  };
  const char* what = "options of another class";
  CHECK_THROWS_WITH_AS(SGD(Groups{adams(a)}), doctest::Contains(what), Error);
  CHECK_THROWS_WITH_AS(optim::LBFGS(Groups{adams(a)}), doctest::Contains(what), Error);
  CHECK_NOTHROW(optim::AdamW(Groups{adams(a)}));
  SGD optimizer(Groups{group({a})}, SGDOptions(0.5));
  CHECK_THROWS_WITH_AS(optimizer.add_param_group(adams(b)), doctest::Contains(what), Error);
  CHECK(optimizer.param_groups().size() == 1);
  give_gradients(optimizer, 1);
  optimizer.param_groups()[0].set_options(AdamOptions().clone());
  CHECK_THROWS_WITH_AS(optimizer.step(), doctest::Contains(what), Error);
  optimizer.param_groups()[0].set_options(nullptr);
  CHECK_THROWS_WITH_AS(optimizer.step(), doctest::Contains("has no options"), Error);
  CHECK_THROWS_WITH_AS(group({a}).options(), doctest::Contains("has no options"), Error);
  CHECK(a.equal(ones({2})));
}

TEST_CASE("an undefined parameter that was put into a group is refused at the next step") {
  const Tensor a = leaf({2});
  SGD optimizer({a}, SGDOptions(0.5));
  optimizer.param_groups()[0].params().emplace_back();
  a.mutable_grad() = ones({2});
  CHECK_THROWS_AS(optimizer.step(), Error);
  CHECK(a.equal(ones({2})));
}

TEST_CASE("state that does not lie beside its parameter any more is refused, not read") {
  const auto refused = [](optim::Optimizer& optimizer, const Tensor& p) {
    const Tensor before = p.detach().clone();
    p.mutable_grad() = full_like(p, 1).detach();
    CHECK_THROWS_WITH_AS(optimizer.step(), doctest::Contains("does not fit its parameter"), Error);
    CHECK(p.equal(before));
  };
  for (const testing::OptimizerKind& kind : testing::rule_optimizers()) {
    if (kind.name == "SGD") continue;  // keeps no state
    CAPTURE(kind.name);
    const Tensor p = leaf({2});
    const auto optimizer = kind.make({p});
    testing::step_with(*optimizer, p, 1);
    p.set_data(ones({1000}));
    refused(*optimizer, p);
  }
  for (const optim::Weights weights : {optim::Weights::Master, optim::Weights::Kahan}) {
    const Tensor p = ones({2}, TensorOptions(kBFloat16).requires_grad(true));
    const auto optimizer = testing::optimizer_kind("SGD").make({p}, weights);
    testing::step_with(*optimizer, p, 1);
    p.set_data(ones({1000}, kBFloat16));
    refused(*optimizer, p);
  }
  const Tensor p = leaf({3});
  Adam optimizer({p}, AdamOptions(0.1));
  testing::step_with(optimizer, p, 1);
  static_cast<optim::AdamParamState&>(*optimizer.state()[p.unsafeGetTensorImpl()])
      .exp_avg(zeros({1}));
  refused(optimizer, p);
}

TEST_CASE("a leaf that does not require grad may be given, and is trained once it has a gradient") {
  const Tensor frozen = full({2}, 1.0);
  SGD optimizer({frozen}, SGDOptions(0.5));
  optimizer.step();
  CHECK(frozen.equal(ones({2})));
  frozen.mutable_grad() = ones({2});
  optimizer.step();
  CHECK(frozen.equal(full({2}, 0.5)));
}

TEST_CASE("a parameter without a gradient stays, and nothing is remembered of it") {
  const Tensor a = leaf({2}), b = leaf({2});
  Adam optimizer({a, b}, AdamOptions(0.5));
  a.mutable_grad() = ones({2});
  const auto version = b.version();
  optimizer.step();
  CHECK(b.equal(ones({2})));
  CHECK(b.version() == version);
  CHECK(optimizer.state_of(b).empty());
  CHECK_FALSE(optimizer.state_of(a).empty());
  CHECK(optimizer.state_of(leaf({1})).empty());
}

TEST_CASE("zero_grad forgets the gradients, or fills them where they are") {
  const Tensor a = leaf({2}), b = leaf({3}), c = leaf({1});
  SGD optimizer(Groups{group({a, c}), group({b})}, SGDOptions());
  a.mutable_grad() = ones({2});
  b.mutable_grad() = ones({3});
  const Tensor seen = b.grad();
  optimizer.zero_grad(false);
  CHECK(a.grad().equal(zeros({2})));
  CHECK(b.grad().is_same(seen));
  CHECK(seen.equal(zeros({3})));
  CHECK_FALSE(c.grad().defined());
  optimizer.zero_grad();
  CHECK_FALSE(a.grad().defined());
  CHECK_FALSE(b.grad().defined());
}

TEST_CASE("zero_grad(false) does not write into a gradient that a graph may still need") {
  const Tensor a = leaf({2}, 3);
  SGD optimizer({a}, SGDOptions());
  (a * a * a).sum().backward({}, true, true);
  const Tensor first = a.grad();
  REQUIRE(first.requires_grad());
  optimizer.zero_grad(false);
  CHECK(first.equal(full({2}, 27.0)));
  CHECK(a.grad().equal(zeros({2})));
  CHECK_FALSE(a.grad().requires_grad());
  a.mutable_grad() = full({1}, 8.0).expand({2});  // two elements that are one
  optimizer.zero_grad(false);
  CHECK(a.grad().equal(zeros({2})));
}

TEST_CASE("gradients add up until zero_grad") {
  const Tensor a = leaf({2});
  SGD optimizer({a}, SGDOptions());
  for (int i = 1; i <= 3; ++i) {
    a.sum().backward();
    CHECK(a.grad().equal(full({2}, static_cast<double>(i))));
  }
  optimizer.zero_grad(false);
  a.sum().backward();
  CHECK(a.grad().equal(ones({2})));
}

TEST_CASE("a closure runs once, records even under NoGradGuard, and its value is given back") {
  const Tensor a = leaf({2}, 2);
  SGD optimizer({a}, SGDOptions(0.25));
  int calls = 0;
  const NoGradGuard no_grad;
  const Tensor loss = optimizer.step([&] {
    ++calls;
    optimizer.zero_grad();
    const Tensor l = (a * a).sum();
    l.backward();
    return l;
  });
  CHECK(calls == 1);
  CHECK(loss.item() == 8);
  CHECK(a.equal(ones({2})));
  CHECK_FALSE(GradMode::is_enabled());
  CHECK_FALSE(optimizer.step().defined());
}

TEST_CASE("a closure that throws leaves the parameters and the recording switch as they were") {
  const Tensor a = leaf({2}, 2);
  SGD optimizer({a}, SGDOptions(0.25));
  a.mutable_grad() = ones({2});
  const NoGradGuard no_grad;
  CHECK_THROWS_AS(optimizer.step([]() -> Tensor { throw Error("stop"); }), Error);
  CHECK(a.equal(full({2}, 2.0)));
  CHECK_FALSE(GradMode::is_enabled());
}

TEST_CASE("a gradient of a wrong shape or dtype is refused before any group has changed") {
  const Tensor a = leaf({2}), b = leaf({2, 3});
  SGD optimizer(Groups{group({a}), group({b})}, SGDOptions(0.5).momentum(0.9));
  a.mutable_grad() = ones({2});
  b.mutable_grad() = ones({3, 2});
  CHECK_THROWS_WITH_AS(optimizer.step(), doctest::Contains("[3, 2]"), Error);
  b.mutable_grad() = ones({2, 3}, kInt64);
  CHECK_THROWS_WITH_AS(optimizer.step(), doctest::Contains("int64"), Error);
  b.mutable_grad() = ones({2, 3});
  static_cast<SGDOptions&>(optimizer.param_groups()[1].options()).momentum(-1);
  CHECK_THROWS_WITH_AS(optimizer.step(), doctest::Contains("momentum value: -1"), Error);
  CHECK(a.equal(ones({2})));
  CHECK(b.equal(ones({2, 3})));
  CHECK(optimizer.state_of(a).empty());
}

TEST_CASE("state of the last group that does not fit is found before the first one has changed") {
  const auto narrow = [] { return leaf({2}, 1, kBFloat16); };
  const Tensor a = narrow(), b = narrow();
  SGD optimizer(Groups{group({a}), group({b})},
                SGDOptions(0.25).momentum(0.5).weights(optim::Weights::Master));
  testing::step_with(optimizer, 1);
  const auto before = optimizer.state_dict();
  const auto refused = [&](const char* what) {
    CHECK_THROWS_WITH_AS(optimizer.step(), doctest::Contains(what), Error);
    CHECK(a.equal(full({2}, 0.75, kBFloat16)));
    for (const auto& [key, value] : before.state[0])
      CHECK(testing::same_bits(Tensor(optimizer.state_of(a).at(key)), Tensor(value)));
  };
  auto& options = static_cast<SGDOptions&>(optimizer.param_groups()[1].options());
  options.weights(optim::Weights::Kahan);
  refused("choose weights before");
  options.weights(optim::Weights::Master);
  static_cast<optim::SGDParamState&>(*optimizer.state()[b.unsafeGetTensorImpl()])
      .momentum_buffer(zeros({3}));
  refused("\"momentum_buffer\"");
}

TEST_CASE("a parameter that was taken out leaves its state to no other one") {
  SGD optimizer({leaf({2})}, SGDOptions(0.5).momentum(0.5));
  testing::step_with(optimizer, 1);
  optimizer.param_groups()[0].params().clear();
  std::vector<Tensor> later;  // one of them would lie where the first one was
  for (int i = 0; i < 64; ++i) later.push_back(leaf({2}));
  for (const Tensor& p : later) CHECK(optimizer.state_of(p).empty());
  optimizer.param_groups()[0].params() = later;
  testing::step_with(optimizer, 1);
  for (const Tensor& p : later) CHECK(p.equal(full({2}, 0.5)));
}

TEST_CASE("a step is not recorded, and a graph that saved the old values notices it") {
  const Tensor a = leaf({2}, 3);
  SGD optimizer({a}, SGDOptions(0.5));
  const Tensor y = (a * a).sum();
  a.mutable_grad() = ones({2});
  optimizer.step();
  CHECK(a.is_leaf());
  CHECK(a.requires_grad());
  CHECK_THROWS_WITH_AS(y.backward(), doctest::Contains("changed in place"), Error);
}

TEST_CASE("parameters and gradients of any layout are stepped like contiguous ones") {
  manual_seed(3);
  const Tensor start = randn({3, 4}), slope = randn({3, 4});
  const Tensor plain = start.clone().requires_grad_();
  const Tensor turned = start.t().contiguous().t().detach().requires_grad_();
  REQUIRE_FALSE(turned.is_contiguous());
  auto train = [&](const Tensor& p, const Tensor& g) {
    Adam optimizer({p}, AdamOptions(0.1).weight_decay(0.1));
    for (int i = 0; i < 3; ++i) p.mutable_grad() = g, optimizer.step();
  };
  train(plain, slope);
  train(turned, slope.t().contiguous().t());
  CHECK(testing::same_bits(plain.detach(), turned.detach()));
}

TEST_CASE("parameters of one element, of none, and of several sizes step together") {
  const Tensor scalar = full({}, 2.0, requires_grad()), none = zeros({0, 3}, requires_grad()),
               large = leaf({7, 11});
  SGD optimizer({scalar, none, large}, SGDOptions(0.5).momentum(0.5));
  testing::step_with(optimizer, 1);
  optimizer.step();  // buffers 1 and 1.5
  CHECK(scalar.item() == 2 - 0.5 - 0.75);
  CHECK(large.equal(full({7, 11}, -0.25)));
}

TEST_CASE("control decides on the device: found_inf skips bit for bit, inv_scale scales") {
  const Tensor a = leaf({3}), b = leaf({3});
  Adam scaled({a}, AdamOptions(0.1)), plain({b}, AdamOptions(0.1));
  auto step = [&](double found, double inverse, double gradient) {
    a.mutable_grad() = full({3}, gradient);
    scaled.step(StepControl{full({}, found).array(), full({}, inverse).array()});
  };
  step(0, 0.25, 8);
  b.mutable_grad() = full({3}, 2.0);
  plain.step();
  CHECK(testing::same_bits(a.detach(), b.detach()));
  const auto before = scaled.state_dict();
  step(1, 0.25, 8);
  CHECK(testing::same_bits(a.detach(), b.detach()));
  for (const auto& [key, value] : before.state[0])
    CHECK(testing::same_bits(Tensor(scaled.state_of(a).at(key)), Tensor(value)));
  CHECK(a.grad().equal(full({3}, 8.0)));
}

TEST_CASE(
    "a user's optimizer steps with the base's services, and refuses control it cannot honour") {
  const Tensor a = leaf({2});
  UsersOwn optimizer({a});
  a.sum().backward();
  optimizer.step();
  CHECK(a.equal(full({2}, 0.5)));
  CHECK_THROWS_WITH_AS(optimizer.step(StepControl{}), doctest::Contains("step()"), Error);
  CHECK(a.equal(full({2}, 0.5)));
}

TEST_CASE("a user's optimizer without default options, or without an update, is told so") {
  const Tensor a = leaf({2});
  CHECK_THROWS_WITH_AS(WithoutUpdate(a, nullptr), "optimizer: expected default options, got null",
                       Error);
  WithoutUpdate optimizer(a, SGDOptions(0.5).clone());
  give_gradients(optimizer, 1);
  CHECK_THROWS_WITH_AS(optimizer.step(),
                       "optimizer: this one overrides neither update() nor step()", Error);
  CHECK(a.equal(ones({2})));
}

TEST_CASE("the table of optimizers names every class of optim/algorithms") {
  std::set<std::string> listed, defined;
  for (const testing::OptimizerKind& kind : testing::optimizers()) {
    listed.insert(kind.class_name());
    const Tensor p = leaf({1});
    CHECK(kind.make({p})->supports_control() == kind.has_rule);
  }
  const std::filesystem::path tests = HALFTAPE_TEST_DATA;
  for (const auto& file : std::filesystem::directory_iterator(tests / "../optim/algorithms")) {
    if (file.path().extension() != ".h") continue;
    std::ifstream header(file.path());
    std::smatch found;
    for (std::string line; std::getline(header, line);)
      if (std::regex_match(line, found, std::regex("class (\\w+) : .*")) &&
          !found[1].str().ends_with("Options"))
        defined.insert(found[1]);
  }
  CHECK(listed == defined);
}

TEST_CASE("a flat parameter that got another shape while it wanted no gradient trains on") {
  Tensor p = ones({2}).requires_grad_();
  optim::SGD sgd({p}, optim::SGDOptions(1));
  sgd.flatten();
  p.requires_grad_(false);
  p.set_data(ones({3}));
  p.requires_grad_(true);
  (p * 2).sum().backward();
  sgd.step();
  CHECK(p.detach().equal(full({3}, -1.)));
}
