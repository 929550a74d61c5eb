// What a scaler's statistics and the result of its step print.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>

#include "halftape/tests/support/printed.h"

using namespace halftape;
using testing::printed;

TEST_CASE("a scaler's statistics print as one line, with the gradient that was not finite") {
  CHECK(printed(amp::ScalerStats()) ==
        "0 steps, 0 skipped (0 in a row, 0 by the loss); scale grew 0x, backed off 0x");
  amp::ScalerStats stats;
  stats.steps = 1200, stats.skips = 3, stats.skips_in_row = 1, stats.bad_losses = 2;
  stats.growths = 4, stats.backoffs = 5;
  stats.nonfinite = {.optimizer = 6, .index = 7, .group = 8, .shape = {10, 64}};
  CHECK(
      printed(stats) ==
      "1200 steps, 3 skipped (1 in a row, 2 by the loss); scale grew 4x, backed off 5x; not finite "
      "in the last skip: parameter 7 of optimizer 6, in group 8, [10, 64]");

  const Tensor w = ones({2, 3}, requires_grad());
  optim::SGD optimizer({w}, optim::SGDOptions(0.5));
  amp::GradScaler scaler;
  scaler.scale(w.sum()).backward();
  w.grad().fill_(INFINITY);
  scaler.step(optimizer);
  scaler.update();
  CHECK(
      printed(scaler.stats()) ==
      "1 step, 1 skipped (1 in a row, 0 by the loss); scale grew 0x, backed off 1x; not finite in "
      "the last skip: parameter 0 of optimizer 0, in group 0, [2, 3]");
}

TEST_CASE("a parameter that has left its optimizer since the last skip is not named any more") {
  const Tensor a = ones({2}, requires_grad()), b = ones({3}, requires_grad());
  optim::SGD optimizer({a, b}, optim::SGDOptions(0.5));
  amp::GradScaler scaler;
  for (const bool bad : {true, false}) {
    scaler.scale(a.sum() + b.sum()).backward();
    if (bad) b.grad().fill_(INFINITY);
    scaler.step(optimizer);
    scaler.update();
    optimizer.zero_grad();
    CHECK(scaler.stats().skips == 1);
    CHECK(scaler.stats().nonfinite.has_value() == bad);
    optimizer.param_groups()[0].params().resize(1);
  }
}

TEST_CASE("the result of a step prints whether it was applied, and why not") {
  const Tensor w = ones({2}, requires_grad());
  optim::SGD optimizer({w}, optim::SGDOptions(0.5));
  amp::GradScaler scaler;
  const auto step = [&](double factor, double wrong) {
    optimizer.zero_grad();
    scaler.scale(w.sum() * factor).backward();
    if (wrong != 0) w.grad().fill_(wrong);
    const amp::StepResult result = scaler.step(optimizer);
    scaler.update();
    return printed(result);
  };
  CHECK(step(1, 0) == "applied");
  CHECK(step(1, INFINITY) == "skipped: a gradient is not finite");
  CHECK(step(INFINITY, 0) == "skipped: the loss is not finite");
  amp::StepResult nothing;
  nothing.had_gradients = false;
  CHECK(printed(nothing) == "nothing to do: no gradients");
}
