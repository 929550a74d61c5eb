// What the options of a group take from the optimizer's defaults; the numbers are LibTorch's.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/optimizers.h"

using namespace halftape;
using optim::AdamOptions;
using optim::AdamWOptions;
using optim::SGDOptions;
using testing::has;
using testing::leaf;
using testing::message;

namespace {

/// The options of a group of `given` in an optimizer with these defaults.
template <class Optimizer, class Given, class Options>
Given joined_options(const Given& given, const Options& defaults) {
  const Optimizer made({optim::OptimizerParamGroup({leaf({2})}, given.clone())}, defaults);
  return static_cast<const Given&>(made.param_groups()[0].options());
}

SGDOptions joined(const SGDOptions& given, const SGDOptions& defaults) {
  return joined_options<optim::SGD>(given, defaults);
}
AdamOptions joined(const AdamOptions& given, const AdamOptions& defaults) {
  return joined_options<optim::Adam>(given, defaults);
}

}  // namespace

TEST_CASE("options of a group that were not set are those of the optimizer") {
  const SGDOptions defaults = SGDOptions(0.1).momentum(0.9).weight_decay(0.01);
  CHECK(joined(SGDOptions(0.5), defaults) == SGDOptions(0.5).momentum(0.9).weight_decay(0.01));
  CHECK(joined(SGDOptions(0.5).momentum(0.3), defaults) ==
        SGDOptions(0.5).momentum(0.3).weight_decay(0.01));
  CHECK(joined(SGDOptions().maximize(true).weights(optim::Weights::Kahan), defaults) ==
        SGDOptions(defaults).maximize(true).weights(optim::Weights::Kahan));
  // A value that is the constructor's own cannot be told from one that was not set.
  CHECK(joined(SGDOptions(1e-3).momentum(0), defaults) == defaults);
}

TEST_CASE("two betas are one option, and are taken over together") {
  const AdamOptions defaults = AdamOptions(0.01).betas({0.5, 0.6}).eps(1e-3).amsgrad(true);
  CHECK(joined(AdamOptions(0.2).betas({0.9, 0.95}), defaults) ==
        AdamOptions(0.2).betas({0.9, 0.95}).eps(1e-3).amsgrad(true));
  CHECK(joined(AdamOptions().weight_decay(0.1), defaults) ==
        AdamOptions(defaults).weight_decay(0.1));
}

TEST_CASE("of AdamW an unset weight decay is 0.01 and that of AdamOptions 0") {
  const AdamWOptions defaults = AdamWOptions(0.01).weight_decay(0.5);
  const auto decay = [&](const auto& given) {
    return joined_options<optim::AdamW>(given, defaults).weight_decay();
  };
  CHECK(decay(AdamWOptions(0.3)) == 0.5);
  CHECK(decay(AdamWOptions(0.3).weight_decay(0)) == 0);
  CHECK(decay(AdamOptions(0.3)) == 0.5);
  CHECK(decay(AdamOptions(0.3).weight_decay(0.01)) == 0.01);
}

TEST_CASE("all optimizers give a group without set options their defaults") {
  using namespace optim;
  const auto all = [](const auto& given, const auto& defaults, const auto& made) {
    CHECK(static_cast<const OptimizerOptions&>(made) == defaults);
    CHECK_FALSE(static_cast<const OptimizerOptions&>(given) == defaults);
  };
  const auto rms = RMSpropOptions(0.1).alpha(0.5).centered(true).momentum(0.2);
  all(RMSpropOptions(), rms, joined_options<RMSprop>(RMSpropOptions(), rms));
  const auto ada = AdagradOptions(0.1).initial_accumulator_value(0.5).lr_decay(0.1);
  all(AdagradOptions(), ada, joined_options<Adagrad>(AdagradOptions(), ada));
  const auto lion = LionOptions(0.1).betas({0.5, 0.6}).weight_decay(0.3);
  all(LionOptions(), lion, joined_options<Lion>(LionOptions(), lion));
  const auto bfgs = LBFGSOptions(0.1).max_iter(5).max_eval(9).line_search_fn("strong_wolfe");
  all(LBFGSOptions(), bfgs, joined_options<LBFGS>(LBFGSOptions(), bfgs));
  const auto own = joined_options<LBFGS>(LBFGSOptions(0.3).max_iter(7), bfgs);
  CHECK(own.max_iter() == 7);
  CHECK(own.max_eval() == 9);
  CHECK(own.line_search_fn() == "strong_wolfe");
}

TEST_CASE("a group is judged by the options that it has with the defaults") {
  CHECK(joined(SGDOptions(0.3).nesterov(true), SGDOptions(0.1).momentum(0.5)).nesterov());
  CHECK(has(message([] { joined(SGDOptions(0.3).nesterov(true), SGDOptions(0.1)); }),
            "nesterov needs a momentum"));
  CHECK(has(message([] { joined(SGDOptions(-1), SGDOptions(0.1)); }), "learning rate: -1"));
}

TEST_CASE("a group added later takes the defaults of that time and its options may be changed") {
  const Tensor a = leaf({1}), b = leaf({1});
  optim::SGD optimizer({a}, SGDOptions(0.5));
  static_cast<SGDOptions&>(optimizer.defaults()).momentum(0.9);
  optimizer.add_param_group({TensorList{b}, SGDOptions(0.25).clone()});
  auto& added = static_cast<SGDOptions&>(optimizer.param_groups()[1].options());
  CHECK(added == SGDOptions(0.25).momentum(0.9));
  added.momentum(0);
  optim::SGD other({optim::OptimizerParamGroup({a}), optim::OptimizerParamGroup({b})},
                   SGDOptions(0.1).momentum(0.5));
  other.load_state_dict(optimizer.state_dict());
  CHECK(other.param_groups()[1].options() == SGDOptions(0.25));
}

TEST_CASE("options below a class that is known keep what they were given") {
  struct Slow : SGDOptions {
    Slow() : SGDOptions(1e-6) {}
    std::unique_ptr<optim::OptimizerOptions> clone() const override {
      return std::make_unique<Slow>(*this);
    }
  };
  CHECK(joined_options<optim::SGD>(Slow(), SGDOptions(0.1).momentum(0.5)).momentum() == 0);
}
