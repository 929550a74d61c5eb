// What a scaler's statistics print.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>
#include <sstream>
#include <string>

using namespace halftape;

namespace {

std::string printed(const amp::ScalerStats& stats) {
  std::ostringstream text;
  text << stats;
  return text.str();
}

}  // namespace

TEST_CASE("a scaler's statistics print as one line, with the gradient that was not finite") {
  CHECK(printed({}) ==
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
