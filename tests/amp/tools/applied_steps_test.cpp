// What moves with the applied steps of a GradScaler: schedules, which look now and then, and
// averages, which are decided on the device.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/nonfinite.h"

using namespace halftape;
using amp::AppliedSteps;
using testing::kInf;

namespace {

struct Model : nn::Module {
  Tensor weight = register_parameter("weight", ones({3}));
};

/// A training whose overflows one chooses.
struct OverflowingTraining {
  Model model;
  optim::SGD optimizer{model.parameters(), optim::SGDOptions(0.125)};
  amp::GradScaler scaler{{.init_scale = 4, .growth_factor = 1, .backoff_factor = 1}};
  amp::StepResult step(bool overflow) {
    optimizer.zero_grad();
    scaler.scale(model.weight.sum()).backward();
    if (overflow) model.weight.mutable_grad()[0] = kInf;
    amp::StepResult result = scaler.step(optimizer);
    scaler.update();
    return result;
  }
};

bool overflows(int t) { return t < 3 || t % 7 == 2; }

}  // namespace

TEST_CASE("a schedule that looks every n steps is ahead by the skips since, and never behind") {
  for (const int64_t every : {1, 4, 25}) {
    CAPTURE(every);
    OverflowingTraining training;
    AppliedSteps applied(every);
    optim::LambdaLR schedule(training.optimizer,
                             [](int64_t e) { return 1.0 / static_cast<double>(e + 1); });
    int64_t really = 0;
    for (int t = 0; t < 150; ++t) {
      const bool overflow = t < 120 && overflows(t);
      really += !overflow;
      applied.step(training.step(overflow), schedule);
      const int64_t ahead = schedule.last_epoch() - really;
      const auto state = applied.state_dict();
      CHECK(static_cast<double>(ahead) == state.at("skips") + state.at("to_hold"));
      if ((t + 1) % every == 0) CHECK(state.at("skips") == 0);
      if (every == 1) CHECK(ahead == 0);
    }
    CHECK(schedule.last_epoch() == really);
  }
}

TEST_CASE("a schedule with a look at every step moves as step_if_applied's does") {
  OverflowingTraining training;
  AppliedSteps applied(1);
  for (int t = 0; t < 20; ++t) {
    const amp::StepResult result = training.step(overflows(t));
    CHECK(applied.step(result, [] {}) == result.applied());
  }
  training.optimizer.zero_grad();
  training.scaler.scale(ones({}));
  CHECK_FALSE(applied.step(training.scaler.step(training.optimizer), [] {}));  // no gradients
}

TEST_CASE("applied steps that were saved and loaded go on alike, whenever that was") {
  for (const int stop : {1, 5, 10, 13}) {
    CAPTURE(stop);
    OverflowingTraining training;
    AppliedSteps whole(5), resumed(9);  // what that one counted before is forgotten
    for (int t = 0; t < stop; ++t) {
      const amp::StepResult result = training.step(overflows(t));
      whole.step(result, [] {}), resumed.step(result, [] {});
    }
    resumed.load_state_dict(whole.state_dict());
    CHECK(resumed.state_dict() == whole.state_dict());
    for (int t = stop; t < 40; ++t) {
      const amp::StepResult result = training.step(overflows(t));
      CHECK(whole.step(result, [] {}) == resumed.step(result, [] {}));
    }
    for (const auto& [name, value] :
         optim::SchedulerState{{"to_hold", 0.5}, {"look_every", 0}, {"steps", -1}, {"skips", -1}}) {
      auto bad = whole.state_dict();
      bad[name] = value;
      const std::string said = '"' + name + "\" is ";
      CHECK_THROWS_WITH_AS(resumed.load_state_dict(bad), doctest::Contains(said.c_str()), Error);
    }
  }
  CHECK_THROWS_WITH_AS(AppliedSteps(0), doctest::Contains("look_every 0"), Error);
}

TEST_CASE("without a scaler's verdict every step counts") {
  Model model;
  optim::SGD optimizer(model.parameters(), optim::SGDOptions(0.125));
  amp::GradScaler off({.enabled = false});
  AppliedSteps applied(2);
  optim::AveragedModel averaged(model);
  for (int t = 0; t < 5; ++t) {
    model.weight.mutable_grad() = ones({3});
    const amp::StepResult result = off.step(optimizer);
    CHECK_FALSE(result.skipped().defined());
    CHECK(applied.step(result, [] {}));
    amp::update_average(result, averaged, model);
  }
  CHECK(averaged.n_averaged() == 5);
}

TEST_CASE("averages do not count the steps that a scaler skipped") {
  for (const bool ema : {false, true}) {
    OverflowingTraining training;
    optim::AveragedModelOptions o;
    if (ema) o.decay(0.5);
    optim::AveragedModel through(training.model, o), known(training.model, o);
    for (int t = 0; t < 20; ++t) {
      const amp::StepResult result = training.step(overflows(t));
      amp::update_average(result, through, training.model);
      if (!overflows(t)) known.update_parameters(training.model);
    }
    CHECK(through.n_averaged() == known.n_averaged());
    CHECK(testing::same_bits(through.averages()["weight"], known.averages()["weight"]));
  }
}
