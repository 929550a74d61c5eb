// Learning-rate schedules against PyTorch's, 200 epochs each: scripts/torch_vectors/schedulers.py
// states the same schedules. Then what all of them share: groups and saving.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numbers>

#include "halftape/tests/support/vectors.h"

using namespace halftape;
using namespace halftape::optim;

namespace {

using Rates = std::vector<double>;
constexpr int kEpochs = 200;

/// Two groups of rates 0.05 and 0.4.
template <class O, class Options>
struct TwoGroups {
  Tensor a = zeros({1}, requires_grad()), b = zeros({1}, requires_grad());
  O optimizer;
  explicit TwoGroups(Options options = Options(1.0))
      : optimizer(std::vector<OptimizerParamGroup>{with(a, options, 0.05), with(b, options, 0.4)}) {
  }
  static OptimizerParamGroup with(const Tensor& p, Options options, double lr) {
    options.lr(lr);
    return {{p}, options.clone()};
  }
  Rates rates() const {
    Rates all;
    for (const auto& group : optimizer.param_groups()) all.push_back(group.options().get_lr());
    return all;
  }
};
using Sgds = TwoGroups<SGD, SGDOptions>;

double metric(int epoch) {
  return 1.0 / (1 + std::min(epoch, 20)) + (60 < epoch && epoch < 120 ? 0.3 * std::sin(epoch) : 0);
}

/// What `read` returns at each epoch that the script stores.
Rates run(const std::function<void(int)>& step, const std::function<Rates()>& read) {
  Rates all;
  for (int epoch = 0; epoch <= kEpochs; ++epoch) {
    if (epoch <= 20 || epoch % 10 == 0)
      for (const double v : read()) all.push_back(v);
    if (epoch < kEpochs) step(epoch);
  }
  return all;
}

void check_close(const Rates& got, const Rates& expected) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(std::abs(got[i] - expected[i]) <= 1e-12 * std::max(std::abs(expected[i]), 1e-4));
  }
}

using Made = std::shared_ptr<LRScheduler>;
using Maker = std::function<Made(SGD&)>;
template <class S, class... Arguments>
Maker made(Arguments... arguments) {
  return [=](SGD& o) { return std::make_shared<S>(o, arguments...); };
}
using Milestones = std::vector<int64_t>;

const std::vector<std::pair<std::string, Maker>>& schedules() {
  static const std::vector<std::pair<std::string, Maker>> all = {
      {"step", made<StepLR>(7, 0.9)},
      {"multi_step", made<MultiStepLR>(Milestones{3, 20, 20, 90}, 0.5)},
      {"exponential", made<ExponentialLR>(0.97)},
      {"constant", made<ConstantLR>(0.3, 12)},
      {"linear", made<LinearLR>(0.01, 0.8, 25)},
      {"polynomial", made<PolynomialLR>(120, 1.7)},
      {"lambda", made<LambdaLR>(std::vector<LRLambda>{
                     [](int64_t e) { return 1.0 / (1.0 + static_cast<double>(e)); },
                     [](int64_t e) { return std::pow(0.95, static_cast<double>(e)); }})},
      {"multiplicative",
       made<MultiplicativeLR>([](int64_t e) { return 1 - 0.5 / (1.0 + static_cast<double>(e)); })},
      {"cosine", made<CosineAnnealingLR>(40, 0.001)},
      {"cosine_once", made<CosineAnnealingLR>(200)},
      {"warm_restarts", made<CosineAnnealingWarmRestarts>(10, 1, 0.001)},
      {"warm_restarts_growing", made<CosineAnnealingWarmRestarts>(6, 2, 0.001)},
      {"swa", made<SWALR>(Rates{0.01, 0.02}, 15)},
      {"swa_linear", made<SWALR>(0.03, 8, AnnealStrategy::Linear)},
      {"swa_at_once", made<SWALR>(0.03, 0)},
      {"nanogpt", made<WarmupCosineLR>(12, 150, 0.004)},
      {"warmup_cosine",
       [](SGD& o) {
         return std::make_shared<SequentialLR>(
             o,
             LRSchedulers{std::make_shared<LinearLR>(o, 0.01, 1, 20),
                          std::make_shared<CosineAnnealingLR>(o, 160, 0.001)},
             Milestones{20});
       }},
      {"sequential",
       [](SGD& o) {
         return std::make_shared<SequentialLR>(
             o,
             LRSchedulers{std::make_shared<ConstantLR>(o, 0.1, 5),
                          std::make_shared<ExponentialLR>(o, 0.9),
                          std::make_shared<CosineAnnealingWarmRestarts>(o, 9, 2),
                          std::make_shared<StepLR>(o, 4, 0.5)},
             Milestones{8, 26, 100});
       }},
      {"sequential_others",
       [](SGD& o) {
         const LRLambda falls = [](int64_t e) { return 1.0 / (2.0 + static_cast<double>(e)); };
         return std::make_shared<SequentialLR>(
             o,
             LRSchedulers{std::make_shared<PolynomialLR>(o, 30),
                          std::make_shared<MultiStepLR>(o, Milestones{2, 4}, 0.1),
                          std::make_shared<LambdaLR>(o, falls), std::make_shared<LinearLR>(o, 0.2)},
             Milestones{10, 20, 50});
       }},
      {"chained",
       [](SGD& o) {
         return std::make_shared<ChainedScheduler>(LRSchedulers{
             std::make_shared<ConstantLR>(o, 0.1, 20), std::make_shared<ExponentialLR>(o, 0.9),
             std::make_shared<StepLR>(o, 11, 2.0)});
       }},
  };
  return all;
}

const std::vector<std::pair<std::string, OneCycleLROptions>>& one_cycles() {
  static const std::vector<std::pair<std::string, OneCycleLROptions>> all = {
      {"one_cycle", OneCycleLROptions({0.2, 0.8}, kEpochs)},
      {"one_cycle_linear",
       OneCycleLROptions(0.2, kEpochs).anneal_strategy(AnnealStrategy::Linear).pct_start(0.4)},
      {"one_cycle_three_phase",
       OneCycleLROptions(0.2, kEpochs).three_phase(true).base_momentum({0.8}).max_momentum({0.9})},
      {"one_cycle_divided", OneCycleLROptions(0.2, kEpochs).div_factor(10).final_div_factor(50)},
  };
  return all;
}

/// One step of both groups with a constant gradient.
void train(Sgds& g, double gradient) {
  for (const Tensor& p : {g.a, g.b}) p.mutable_grad() = full({1}, gradient);
  g.optimizer.step();
}

}  // namespace

// Measured: 1e-14 where a rate has been multiplied 200 times.
TEST_CASE("every schedule stays with PyTorch's to 1e-12 over 200 epochs") {
  const testing::Vectors torch("schedulers.txt");
  for (const auto& [called, make] : schedules()) {
    const auto& name = called;  // Clang 14 captures no structured binding
    CAPTURE(name);
    Sgds g;
    const Made schedule = make(g.optimizer);
    check_close(run([&](int) { schedule->step(); }, [&] { return g.rates(); }), torch[name]);
    CHECK(schedule->get_last_lr() == g.rates());
  }
}

TEST_CASE("one cycle moves rate and momentum as PyTorch's does") {
  const testing::Vectors torch("schedulers.txt");
  for (const auto& [called, options] : one_cycles()) {
    const auto& name = called;  // Clang 14 captures no structured binding
    CAPTURE(name);
    Sgds g(SGDOptions(1.0).momentum(0.5));
    OneCycleLR schedule(g.optimizer, options);
    const Rates lrs = run([&](int) { schedule.step(); }, [&] { return g.rates(); });
    // After the last step torch's line goes on, below 0.
    const auto until_then = [&](Rates all) {
      if (name == "one_cycle_linear") all.resize(all.size() - 2);
      return all;
    };
    check_close(until_then(lrs), until_then(torch[name + "/lr"]));
    Sgds h(SGDOptions(1.0).momentum(0.5));
    OneCycleLR again(h.optimizer, options);
    const Rates momenta =
        run([&](int) { again.step(); },
            [&] {
              Rates all;
              for (auto& group : h.optimizer.param_groups())
                all.push_back(static_cast<SGDOptions&>(group.options()).momentum());
              return all;
            });
    check_close(until_then(momenta), until_then(torch[name + "/momentum"]));
    if (name != "one_cycle_linear") continue;
    CHECK(lrs.back() == doctest::Approx(0.2 / 25 / 1e4).epsilon(1e-12));  // where it has ended
    CHECK(momenta.back() == doctest::Approx(0.95).epsilon(1e-12));
  }
}

TEST_CASE("one cycle moves Adam's first beta and leaves the second one") {
  const testing::Vectors torch("schedulers.txt");
  TwoGroups<Adam, AdamOptions> g;
  OneCycleLR schedule(g.optimizer, OneCycleLROptions(0.2, kEpochs));
  check_close(run([&](int) { schedule.step(); },
                  [&] {
                    Rates all;
                    for (auto& group : g.optimizer.param_groups()) {
                      const auto betas = static_cast<AdamOptions&>(group.options()).betas();
                      CHECK(std::get<1>(betas) == 0.999);
                      all.push_back(std::get<0>(betas));
                    }
                    return all;
                  }),
              torch["one_cycle/beta1"]);
}

TEST_CASE("a plateau lowers the rate when PyTorch's does") {
  const testing::Vectors torch("schedulers.txt");
  using Plateau = ReduceLROnPlateauScheduler;
  const auto check = [&](const char* name, auto make) {
    CAPTURE(name);
    Sgds g;
    Plateau schedule = make(g.optimizer);
    check_close(run([&](int e) { schedule.step(metric(e)); }, [&] { return g.rates(); }),
                torch[name]);
    CHECK(schedule.get_last_lr() == g.rates());
  };
  check("plateau", [](SGD& o) { return Plateau(o, Plateau::min, 0.1, 4); });
  check("plateau_max", [](SGD& o) {
    return Plateau(o, Plateau::max, 0.5, 6, 1e-4, Plateau::rel, 0, {0.001, 0.1});
  });
  check("plateau_abs",
        [](SGD& o) { return Plateau(o, Plateau::min, 0.7, 3, 0.01, Plateau::abs, 5); });
}

TEST_CASE("warm restarts take fractions of an epoch") {
  const testing::Vectors torch("schedulers.txt");
  Sgds g;
  CosineAnnealingWarmRestarts schedule(g.optimizer, 6, 2, 0.001);
  check_close(run([&](int e) { schedule.step(0.3 * (e + 1)); }, [&] { return g.rates(); }),
              torch["warm_restarts_fractions"]);
  CHECK_THROWS_WITH_AS(schedule.step(-0.5), doctest::Contains("-0.5 is negative"), Error);
}

TEST_CASE("two schedules of one optimizer begin with the rate before any of them") {
  const testing::Vectors torch("schedulers.txt");
  Sgds g;
  LinearLR warm_up(g.optimizer, 0.1, 1, 10);
  CosineAnnealingLR cosine(g.optimizer, 100, 0.001);
  check_close(run([&](int) { warm_up.step(), cosine.step(); }, [&] { return g.rates(); }),
              torch["two_at_once"]);
}

TEST_CASE("nanoGPT's schedule is its formula at every iteration") {
  Sgds g;
  WarmupCosineLR schedule(g.optimizer, 10, 60, 0.005);
  for (int it = 0; it < 80; ++it) {
    CAPTURE(it);
    const auto formula = [it](double lr) {
      if (it < 10) return lr * (it + 1) / 11;
      if (it > 60) return 0.005;
      const double coefficient = 0.5 * (1 + std::cos(std::numbers::pi * (it - 10) / 50));
      return 0.005 + coefficient * (lr - 0.005);
    };
    check_close(g.rates(), {formula(0.05), formula(0.4)});
    schedule.step();
  }
}

TEST_CASE("a schedule within a schedule begins when its time comes") {
  Sgds g;
  const auto inner = std::make_shared<SequentialLR>(
      g.optimizer,
      LRSchedulers{std::make_shared<ConstantLR>(g.optimizer, 0.5, 2),
                   std::make_shared<ExponentialLR>(g.optimizer, 0.1)},
      Milestones{3});
  SequentialLR outer(g.optimizer, {std::make_shared<ConstantLR>(g.optimizer, 0.25, 100), inner},
                     {2});
  Rates first;
  for (int e = 0; e < 8; ++e, outer.step()) first.push_back(g.rates()[0] / 0.05);
  check_close(first, {0.25, 0.25, 0.5, 0.5, 1, 1, 0.1, 0.01});
}

TEST_CASE("a multiplicative schedule leaves the rate at epoch 0, also after a milestone") {
  Sgds g;
  SequentialLR schedule(
      g.optimizer,
      {std::make_shared<ConstantLR>(g.optimizer, 1.0, 1),
       std::make_shared<MultiplicativeLR>(g.optimizer, [](int64_t) { return 0.5; })},
      {2});
  Rates all;
  for (int e = 0; e < 5; ++e, schedule.step()) all.push_back(g.rates()[1]);
  check_close(all, {0.4, 0.4, 0.4, 0.2, 0.1});
}

TEST_CASE("a constant factor that lasts for no epoch does not change the rate") {
  Sgds g;
  ConstantLR schedule(g.optimizer, 0.5, 0);
  for (int e = 0; e < 3; ++e, schedule.step()) CHECK(g.rates() == Rates{0.05, 0.4});
}

TEST_CASE("every schedule refuses groups that came or went, and nothing changes") {
  const auto check = [](const std::string& name, const Maker& make) {
    // The epochs before a milestone, a restart, and one after the bottom of a cosine.
    for (const int epochs : {0, 5, 7, 9, 40})
      for (const bool added : {false, true}) {
        CAPTURE(name);
        CAPTURE(epochs);
        CAPTURE(added);
        Sgds g(SGDOptions(1.0).momentum(0.5));
        const Made schedule = make(g.optimizer);
        for (int e = 0; e < epochs; ++e) schedule->step();
        if (added)
          g.optimizer.add_param_group(Sgds::with(zeros({1}, requires_grad()), SGDOptions(), 0.1));
        else
          g.optimizer.param_groups().pop_back();
        const auto options = g.optimizer.state_dict().groups;
        const auto state = schedule->state_dict();
        CHECK_THROWS_WITH_AS(schedule->step(), doctest::Contains("when all groups are there"),
                             Error);
        CHECK(g.optimizer.state_dict().groups == options);
        CHECK(schedule->state_dict() == state);
      }
  };
  for (const auto& [name, make] : schedules()) check(name, make);
  for (const auto& [name, options] : one_cycles()) check(name, made<OneCycleLR>(options));
  check("a schedule within a schedule", [](SGD& o) {
    const auto inner = std::make_shared<SequentialLR>(
        o, LRSchedulers{std::make_shared<ConstantLR>(o, 0.5, 2)}, Milestones{});
    return std::make_shared<SequentialLR>(o, LRSchedulers{std::make_shared<StepLR>(o, 3), inner},
                                          Milestones{8});
  });
}

TEST_CASE("every schedule that was saved and loaded goes on bit for bit, momentum included") {
  const auto check = [](const std::string& name, const Maker& make) {
    for (const int stop : {0, 1, 13, 33}) {
      CAPTURE(name);
      CAPTURE(stop);
      Sgds whole(SGDOptions(1.0).momentum(0.5)), resumed(SGDOptions(1.0).momentum(0.5));
      const Made one = make(whole.optimizer);
      for (int t = 0; t < stop; ++t) train(whole, 1), one->step();
      const Made two = make(resumed.optimizer);
      {
        const NoGradGuard no_grad;
        resumed.a.copy_(whole.a), resumed.b.copy_(whole.b);
      }
      resumed.optimizer.load_state_dict(whole.optimizer.state_dict());
      two->load_state_dict(one->state_dict());
      CHECK(two->get_last_lr() == one->get_last_lr());
      CHECK(two->last_epoch() == one->last_epoch());
      CHECK(two->state_dict() == one->state_dict());
      for (int t = stop; t < 60; ++t) {
        train(whole, 1), one->step();
        train(resumed, 1), two->step();
        REQUIRE(whole.optimizer.state_dict().groups == resumed.optimizer.state_dict().groups);
      }
      CHECK(resumed.a.equal(whole.a));
      CHECK(resumed.b.equal(whole.b));
    }
  };
  for (const auto& [name, make] : schedules()) check(name, make);
  for (const auto& [name, options] : one_cycles()) check(name, made<OneCycleLR>(options));
}

TEST_CASE("a schedule that is made after the optimizer was loaded starts from the first rates") {
  const auto linear = [](int64_t e) { return 1 / (1.0 + static_cast<double>(e)); };
  Sgds before, after;
  LambdaLR first(before.optimizer, linear);
  for (int e = 0; e < 3; ++e) first.step();
  CHECK(before.rates() == Rates{0.0125, 0.1});
  after.optimizer.load_state_dict(before.optimizer.state_dict());
  CHECK(after.rates() == Rates{0.0125, 0.1});
  const LambdaLR second(after.optimizer, linear);
  CHECK(after.rates() == Rates{0.05, 0.4});
  // A state from before any schedule is one without.
  after.optimizer.load_state_dict(Sgds().optimizer.state_dict());
  CHECK_FALSE(after.optimizer.param_groups()[1].initial_lr);
}

TEST_CASE("a plateau that was saved and loaded goes on as if nothing had happened") {
  for (int stop = 0; stop < kEpochs; ++stop) {
    Sgds whole, resumed;
    const auto make = [](SGD& o) {
      using Plateau = ReduceLROnPlateauScheduler;
      return Plateau(o, Plateau::min, 0.7, 3, 0.01, Plateau::abs, 5);
    };
    auto one = make(whole.optimizer), two = make(resumed.optimizer);
    for (int t = 0; t < stop; ++t) one.step(metric(t));
    resumed.optimizer.load_state_dict(whole.optimizer.state_dict());
    two.load_state_dict(one.state_dict());
    for (int t = stop; t < kEpochs; ++t) {
      one.step(metric(t)), two.step(metric(t));
      CHECK(whole.rates() == resumed.rates());
    }
    CHECK(two.state_dict() == one.state_dict());
  }
}

TEST_CASE("one cycle ends where it was told to, and asks for a momentum to cycle") {
  Sgds g;
  OneCycleLR schedule(g.optimizer, OneCycleLROptions(0.1, 3));
  for (int t = 0; t < 3; ++t) schedule.step();
  CHECK_THROWS_WITH_AS(schedule.step(), doctest::Contains("step 4 is beyond total_steps 3"), Error);
  const Tensor p = zeros({1}, requires_grad());
  LBFGS without({p});
  CHECK_THROWS_WITH_AS(OneCycleLR(without, OneCycleLROptions(0.1, 3)),
                       doctest::Contains("turn cycle_momentum off"), Error);
  CHECK_NOTHROW(OneCycleLR(without, OneCycleLROptions(0.1, 3).cycle_momentum(false)));
}

TEST_CASE("a cycle whose rising phase has no length begins with its highest rate") {
  Sgds g(SGDOptions(1.0).momentum(0.5));
  OneCycleLR schedule(g.optimizer, OneCycleLROptions(0.5, 10).pct_start(0.1));
  CHECK(g.rates() == Rates{0.5, 0.5});
  for (int t = 0; t < 9; ++t) schedule.step();
  CHECK(g.rates()[0] == doctest::Approx(0.5 / 25 / 1e4));
}

TEST_CASE("a schedule moves an asynchronous optimizer, from its next step on") {
  const Tensor p = zeros({1}, requires_grad());
  AsyncOptimizer optimizer(std::make_unique<SGD>(std::vector<Tensor>{p}, SGDOptions(1.0)));
  ExponentialLR schedule(optimizer, 0.5);
  double expected = 0;
  for (int t = 0; t < 4; ++t) {
    p.mutable_grad() = ones({1});
    optimizer.step();
    schedule.step();
    expected -= std::pow(0.5, t);
  }
  optimizer.synchronize();
  CHECK(p.item<double>() == expected);
}

TEST_CASE("a schedule of one's own says only what the rates are") {
  struct Halves : LRScheduler {
    explicit Halves(Optimizer& o) : LRScheduler(o) {}

   private:
    std::vector<double> get_lrs() override {
      return scaled(base_lrs_, std::pow(0.5, static_cast<double>(step_count_)));
    }
  };
  Sgds g;
  Halves schedule(g.optimizer);
  CHECK(schedule.last_epoch() == -1);
  schedule.step();
  CHECK(g.rates() == Rates{0.05, 0.4});
  schedule.step();
  CHECK(g.rates() == Rates{0.025, 0.2});
  CHECK(schedule.last_epoch() == 1);
}
