// What schedules refuse: options and states out of range, groups that came later, and an optimizer
// that is gone. And that they end at rates that optimizers take.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>
#include <limits>
#include <memory>

#include "halftape/tests/support/nonfinite.h"

using namespace halftape;
using namespace halftape::optim;
using testing::kInf, testing::kNaN;

namespace {

using Plateau = ReduceLROnPlateauScheduler;

/// Two groups of rates 0.05 and 0.4.
struct TwoRates {
  Tensor a = zeros({1}, requires_grad()), b = zeros({1}, requires_grad());
  SGD optimizer{std::vector<OptimizerParamGroup>{{{a}, SGDOptions(0.05).clone()},
                                                 {{b}, SGDOptions(0.4).clone()}}};
};

}  // namespace

// A copy would share the parts.
static_assert(!std::is_copy_constructible_v<optim::SequentialLR> &&
              !std::is_copy_assignable_v<optim::ChainedScheduler> &&
              std::is_move_constructible_v<optim::SequentialLR>);

TEST_CASE("a schedule's state that does not fit is refused with all that is wrong") {
  TwoRates g;
  StepLR schedule(g.optimizer, 7);
  const auto good = schedule.state_dict();
  auto bad = good;
  bad.erase("gamma");
  bad["step_size"] = 2.5;
  bad["T_max"] = 3;
  const auto refused = [&](const char* what) {
    CHECK_THROWS_WITH_AS(schedule.load_state_dict(bad), doctest::Contains(what), Error);
    CHECK(schedule.state_dict() == good);
  };
  refused("it has no \"gamma\"");
  refused("\"step_size\" is 2.5, expected a whole number");
  refused("nothing here is called \"T_max\"");
  for (const double count : {0.0, -1.0, 0x1p60, kInf, kNaN}) {
    bad = good;
    bad["step_size"] = count;
    refused("\"step_size\" is ");
    bad = good;
    bad["step_count"] = count;
    if (std::abs(count) > 0x1p53 || std::isnan(count)) refused("\"step_count\" is ");
  }
  bad = good;
  bad["gamma"] = kNaN;
  refused("\"gamma\" is nan, expected a number");
  CosineAnnealingLR cosine(g.optimizer, 5);
  auto never = cosine.state_dict();
  never["T_max"] = 0;
  CHECK_THROWS_WITH_AS(cosine.load_state_dict(never), doctest::Contains("[1, inf)"), Error);
  CosineAnnealingWarmRestarts warm(g.optimizer, 5);
  const auto restarts = warm.state_dict();
  for (const char* period : {"T_0", "T_i", "T_mult"}) {
    auto zero = restarts;
    zero.at(period) = 0;
    CHECK_THROWS_WITH_AS(warm.load_state_dict(zero), doctest::Contains(period), Error);
    CHECK(warm.state_dict() == restarts);
  }
  TwoRates other;
  ExponentialLR another(other.optimizer, 0.5);
  CHECK_THROWS_WITH_AS(another.load_state_dict(good), doctest::Contains("\"step_size\""), Error);
  const Tensor single = zeros({1}, requires_grad());
  SGD one_group({single}, SGDOptions(0.1));
  CHECK_THROWS_WITH_AS(StepLR(one_group, 7).load_state_dict(good),
                       doctest::Contains("\"base_lrs.1\""), Error);
}

TEST_CASE("a group added after the schedule was made is noticed") {
  TwoRates g;
  ExponentialLR schedule(g.optimizer, 0.5);
  const Tensor late = zeros({1}, requires_grad());
  g.optimizer.add_param_group(OptimizerParamGroup({late}));
  CHECK_THROWS_WITH_AS(schedule.step(), doctest::Contains("when all groups are there"), Error);
}

TEST_CASE("a part that was made for other groups is noticed before another part steps") {
  TwoRates g;
  const auto early = std::make_shared<ExponentialLR>(g.optimizer, 0.5);
  const Tensor late = zeros({1}, requires_grad());
  g.optimizer.add_param_group(OptimizerParamGroup({late}));
  const auto fits = std::make_shared<ExponentialLR>(g.optimizer, 0.5);
  ChainedScheduler chain({fits, early});
  const auto before = g.optimizer.state_dict().groups;
  CHECK_THROWS_WITH_AS(chain.step(), doctest::Contains("when all groups are there"), Error);
  CHECK(g.optimizer.state_dict().groups == before);
  CHECK(fits->last_epoch() == 0);
}

TEST_CASE("a plateau with a lowest rate for each group refuses others, and nothing changes") {
  TwoRates g;
  Plateau schedule(g.optimizer, Plateau::min, 0.5, 0, 0, Plateau::rel, 0, {0.01, 0.1});
  schedule.step(1);
  g.optimizer.param_groups().pop_back();
  const auto before = schedule.state_dict();
  CHECK_THROWS_WITH_AS(schedule.step(2), doctest::Contains("2 values of min_lr for 1 groups"),
                       Error);
  CHECK(schedule.state_dict() == before);
}

TEST_CASE("options of schedules that make no sense are refused by name and value") {
  TwoRates g;
  SGD& o = g.optimizer;
  const auto refused = [&](const char* what, auto make) {
    CHECK_THROWS_WITH_AS(make(), doctest::Contains(what), Error);
  };
  refused("StepLR: step_size 0", [&] { StepLR(o, 0); });
  refused("ConstantLR: factor 0", [&] { ConstantLR(o, 0); });
  refused("ConstantLR: factor 1.5", [&] { ConstantLR(o, 1.5); });
  refused("ConstantLR: total_iters -1", [&] { ConstantLR(o, 0.5, -1); });
  refused("LinearLR: start_factor 0", [&] { LinearLR(o, 0.0); });
  refused("LinearLR: end_factor 2", [&] { LinearLR(o, 0.5, 2); });
  refused("LinearLR: total_iters 0", [&] { LinearLR(o, 0.5, 1, 0); });
  refused("PolynomialLR: total_iters 0", [&] { PolynomialLR(o, 0); });
  refused("CosineAnnealingLR: T_max 0", [&] { CosineAnnealingLR(o, 0); });
  refused("T_0 0", [&] { CosineAnnealingWarmRestarts(o, 0); });
  refused("T_mult 0", [&] { CosineAnnealingWarmRestarts(o, 5, 0); });
  refused("warmup_iters 5", [&] { WarmupCosineLR(o, 5, 5); });
  refused("3 functions for 2 groups", [&] { LambdaLR(o, std::vector<LRLambda>(3)); });
  refused("a function is empty", [&] { MultiplicativeLR(o, LRLambda()); });
  refused("total_steps 0", [&] { OneCycleLR(o, OneCycleLROptions(0.1, 0)); });
  refused("pct_start 2", [&] { OneCycleLR(o, OneCycleLROptions(0.1, 9).pct_start(2)); });
  refused("div_factor 0", [&] { OneCycleLR(o, OneCycleLROptions(0.1, 9).div_factor(0)); });
  refused("3 values of max_lr", [&] { OneCycleLR(o, OneCycleLROptions({1, 2, 3}, 9)); });
  refused("factor 1 is not in [0, 1)",
          [&] { ReduceLROnPlateauScheduler(o, ReduceLROnPlateauScheduler::min, 1); });
  refused("anneal_epochs -1", [&] { SWALR(o, 0.1, -1); });
  refused("at least one schedule", [&] { ChainedScheduler(LRSchedulers{}); });
  refused("a schedule is null", [&] { ChainedScheduler({nullptr}); });
  const auto part = [](SGD& optimizer) { return std::make_shared<StepLR>(optimizer, 3); };
  refused("2 schedules need 1 milestones, got 0", [&] { SequentialLR(o, {part(o), part(o)}, {}); });
  refused("milestones must rise", [&] { SequentialLR(o, {part(o), part(o), part(o)}, {5, 2}); });
  TwoRates other;
  refused("of another optimizer", [&] { SequentialLR(o, {part(other.optimizer)}, {}); });
  refused("of another optimizer", [&] { ChainedScheduler({part(o), part(other.optimizer)}); });
}

TEST_CASE("a number that no schedule can use is refused when it is made, by name and range") {
  TwoRates g;
  SGD& o = g.optimizer;
  const auto refused = [&](const char* what, auto make) {
    CHECK_THROWS_WITH_AS(make(), doctest::Contains(what), Error);
  };
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const double bad : {kNaN, -0.5, kInf}) {
    CAPTURE(bad);
    refused("ExponentialLR: gamma ", [&] { ExponentialLR(o, bad); });
    refused("StepLR: gamma ", [&] { StepLR(o, 3, bad); });
    refused("MultiStepLR: gamma ", [&] { MultiStepLR(o, {3}, bad); });
    refused("ConstantLR: factor ", [&] { ConstantLR(o, bad); });
    refused("LinearLR: start_factor ", [&] { LinearLR(o, bad); });
    refused("LinearLR: end_factor ", [&] { LinearLR(o, 0.5, bad); });
    refused("CosineAnnealingLR: eta_min ", [&] { CosineAnnealingLR(o, 5, bad); });
    refused("WarmRestarts: eta_min ", [&] { CosineAnnealingWarmRestarts(o, 5, 1, bad); });
    refused("WarmupCosineLR: min_lr ", [&] { WarmupCosineLR(o, 2, 5, bad); });
    refused("SWALR: swa_lr.0 ", [&] { SWALR(o, bad); });
    refused("OneCycleLR: max_lr.0 ", [&] { OneCycleLR(o, OneCycleLROptions(bad, 9)); });
    refused("OneCycleLR: pct_start ",
            [&] { OneCycleLR(o, OneCycleLROptions(0.1, 9).pct_start(bad)); });
    refused("OneCycleLR: base_momentum.1 ", [&] {
      OneCycleLR(o, OneCycleLROptions(0.1, 9).base_momentum({0.5, bad}));
    });
    refused("Scheduler: factor ", [&] { Plateau(o, Plateau::min, bad); });
    refused("Scheduler: min_lr.0 ",
            [&] { Plateau(o, Plateau::min, 0.1, 10, 1e-4, Plateau::rel, 0, {bad}); });
  }
  refused("ExponentialLR: gamma nan is not in [0, inf)", [&] { ExponentialLR(o, kNaN); });
  refused("PolynomialLR: power nan is not in [0, inf)", [&] { PolynomialLR(o, 5, kNaN); });
  refused("PolynomialLR: power -1 is not in [0, inf)", [&] { PolynomialLR(o, 5, -1); });
  refused("Scheduler: threshold nan", [&] { Plateau(o, Plateau::min, 0.1, 10, kNaN); });
  refused("Scheduler: patience -1", [&] { Plateau(o, Plateau::min, 0.1, -1); });
  refused("CosineAnnealingLR: T_max 9.22337e+18", [&] { CosineAnnealingLR(o, kMost); });
  refused("StepLR: step_size 9.22337e+18", [&] { StepLR(o, kMost); });
  CosineAnnealingWarmRestarts warm(o, int64_t{1} << 52, int64_t{1} << 52);
  CHECK_NOTHROW(warm.step(0x1p52 + 1));
  CHECK(warm.get_last_lr() == std::vector<double>{0.05, 0.4});
  for (const double epoch : {kNaN, 0x1p53, kInf})
    refused("is not in [0, 2^53)", [&] { warm.step(epoch); });
}

TEST_CASE("options that do not fit each other are refused in a saved state, too") {
  TwoRates g;
  WarmupCosineLR warmup(g.optimizer, 2, 9);
  const auto part = [&] { return std::make_shared<StepLR>(g.optimizer, 3); };
  SequentialLR parts(g.optimizer, {part(), part(), part()}, {2, 5});
  ChainedScheduler chain({std::make_shared<WarmupCosineLR>(g.optimizer, 2, 9)});
  const auto refused = [](LRScheduler& schedule, const char* name, double value, const char* what) {
    const SchedulerState good = schedule.state_dict();
    SchedulerState bad = good;
    REQUIRE(bad.count(name) == 1);
    bad[name] = value;
    CHECK_THROWS_WITH_AS(schedule.load_state_dict(bad), doctest::Contains(what), Error);
    CHECK(schedule.state_dict() == good);
  };
  refused(warmup, "warmup_iters", 9, "warmup_iters 9 is not below lr_decay_iters 9");
  CosineAnnealingWarmRestarts restarts(g.optimizer, 3);
  refused(restarts, "T_cur", 3, "T_cur 3 is not below T_i 3");
  refused(parts, "milestones.0", 7, "milestones must rise");
  refused(parts, "schedulers.1.gamma", -1, "\"schedulers.1.gamma\" is -1, expected a number in [0");
  refused(chain, "schedulers.0.warmup_iters", 10, "warmup_iters 10 is not below");
  refused(warmup, "step_count", -2, "\"step_count\" is -2");
}

TEST_CASE("a schedule that outlives its optimizer says so") {
  auto g = std::make_unique<TwoRates>();
  StepLR schedule(g->optimizer, 2);
  Plateau plateau(g->optimizer);
  SequentialLR parts(g->optimizer, {std::make_shared<ExponentialLR>(g->optimizer, 0.5)}, {});
  auto asynchronous = std::make_unique<AsyncOptimizer>(
      std::make_unique<SGD>(std::vector<Tensor>{zeros({1}, requires_grad())}, SGDOptions(0.5)));
  StepLR of_asynchronous(*asynchronous, 2);
  schedule.step();
  const SchedulerState saved = schedule.state_dict();
  g.reset();
  asynchronous.reset();
  for (LRScheduler* s : {static_cast<LRScheduler*>(&schedule), static_cast<LRScheduler*>(&parts),
                         static_cast<LRScheduler*>(&of_asynchronous)})
    CHECK_THROWS_WITH_AS(s->step(), doctest::Contains("its optimizer is gone"), Error);
  CHECK_THROWS_WITH_AS(plateau.step(1), doctest::Contains("its optimizer is gone"), Error);
  CHECK(schedule.state_dict() == saved);
  CHECK(schedule.get_last_lr() == std::vector<double>{0.05, 0.4});
}

TEST_CASE("a training goes on, and is saved, after a schedule that ends at 0 or is over") {
  const auto check = [](auto make, int64_t steps) {
    const Tensor p = zeros({1}, requires_grad());
    SGD optimizer({p}, SGDOptions(0.1).momentum(0.5)), other({p}, SGDOptions(0.1).momentum(0.5));
    auto schedule = make(optimizer);
    for (int64_t t = 0; t < steps; ++t) {
      p.mutable_grad() = ones({1});
      optimizer.step();
      schedule.step();
    }
    CHECK_NOTHROW(optimizer.step());
    CHECK_NOTHROW(other.load_state_dict(optimizer.state_dict()));
  };
  for (const double start : {0.01, 0.1, 0.3, 1.0 / 3, 0.7, 1.0})
    for (int64_t total = 1; total <= 12; ++total)
      check([&](SGD& o) { return LinearLR(o, start, 0, total); }, total + 2);
  for (const bool linear : {false, true})
    check(
        [&](SGD& o) {
          OneCycleLROptions options(0.1, 10);
          if (linear) options.anneal_strategy(AnnealStrategy::Linear);
          return OneCycleLR(o, options);
        },
        10);
}

TEST_CASE("a schedule that is refused has changed nothing of its optimizer") {
  TwoRates g;
  CHECK_THROWS_AS(StepLR(g.optimizer, 0), Error);
  const Tensor p = zeros({1}, requires_grad());
  Adam adam({{{g.a}, AdamOptions(0.1).clone()}, {{g.b}, AdamOptions(0.2).clone()}});
  const auto before = adam.state_dict().groups;
  CHECK_THROWS_AS(OneCycleLR(adam, OneCycleLROptions(1, 10).max_momentum({0.8, 1})), Error);
  CHECK_THROWS_AS(OneCycleLR(adam, OneCycleLROptions(1, 0)), Error);
  CHECK(adam.state_dict().groups == before);
  g.optimizer.param_groups()[0].options().set_lr(0.5);
  const LambdaLR constant(g.optimizer, [](int64_t) { return 1.0; });
  CHECK(g.optimizer.param_groups()[0].options().get_lr() == 0.5);
}

TEST_CASE("a schedule made before an AsyncOptimizer took its optimizer is told") {
  const Tensor p = zeros({1}, requires_grad());
  auto plain = std::make_unique<SGD>(std::vector{p}, SGDOptions(0.1));
  StepLR early(*plain, 1);
  AsyncOptimizer optimizer(std::move(plain));
  CHECK_THROWS_WITH_AS(early.step(), doctest::Contains("an AsyncOptimizer has taken it"), Error);
  StepLR late(optimizer, 1, 0.5);
  late.step();
  CHECK(optimizer.param_groups()[0].options().get_lr() == 0.05);
}

TEST_CASE("schedules nest 500 deep, and no deeper") {
  const Tensor p = zeros({1}, requires_grad());
  SGD optimizer({p}, SGDOptions(1));
  std::shared_ptr<LRScheduler> nested = std::make_shared<ExponentialLR>(optimizer, 0.5);
  for (int i = 0; i < 500; ++i) nested = std::make_shared<ChainedScheduler>(LRSchedulers{nested});
  nested->step();
  CHECK(optimizer.param_groups()[0].options().get_lr() == 0.5);
  CHECK_THROWS_WITH_AS(ChainedScheduler(LRSchedulers{nested}),
                       doctest::Contains("nested more than 500 deep"), Error);
  CHECK_THROWS_AS(SequentialLR(optimizer, LRSchedulers{nested}, {}), Error);
}

TEST_CASE("a cosine that returns to a rate of 0 does not fall below it") {
  for (const int64_t T_max : {2, 3, 4, 5, 6, 7, 8, 10, 11}) {
    CAPTURE(T_max);
    Tensor w = zeros({1}, requires_grad());
    SGD optimizer({w}, SGDOptions(0));
    CosineAnnealingLR schedule(optimizer, T_max, 0.01);
    for (int64_t epoch = 0; epoch < 6 * T_max; ++epoch) {
      w.sum().backward();
      optimizer.step();
      schedule.step();
    }
    CHECK(optimizer.param_groups()[0].options().get_lr() == doctest::Approx(0));
  }
}
