// Chapter 5: which one scale, never changed, trains the network?
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "figure.h"

using namespace course;
using halftape::amp::GradScalerOptions;

namespace {

constexpr double kWeight = 1e-5;

void compare(const Arguments& arguments) {
  Table table({{"scale"}, {"steps"}, {"skipped"}, {"accuracy", "{:.1f} %"}});
  Table printed = table;
  report::Points accuracy, skipped;
  for (int e = -2; e <= 44; e += 2) {
    const auto fixed = GradScalerOptions::fixed(std::ldexp(1, e));
    Training training({.loss_weight = kWeight, .scaler = fixed, .seed = arguments.seed});
    training.run();
    const auto skips = static_cast<double>(training.scaler.stats().skips);
    const auto steps = static_cast<double>(training.steps());
    table.add({fmt::format("2^{}", e), steps, skips, training.accuracy()});
    if (e < 4 || e > 34 || e % 4 == 0) printed.add(table.rows().back());
    accuracy.push_back({e, training.accuracy()});
    skipped.push_back({e, 100 * skips / steps});
  }
  fmt::print("fixed scales, 60 epochs, weight 1e-5, seed {}\n", arguments.seed);
  printed.print();

  // What chapter 4 measured, of the worst layer.
  Training training({.loss_weight = kWeight, .scaler = {.enabled = true}, .seed = arguments.seed});
  training.run(330);
  const auto trials = halftape::amp::try_scales(
      *training.model, [&] { return training.loss(); }, -2, 44);
  report::Points error;
  for (const auto& trial : trials.trials)
    if (!trial.overflows)
      error.push_back({std::log2(trial.scale),
                       std::log10(*std::max_element(trial.errors.begin(), trial.errors.end()))});

  Figure figure("Accuracy with one fixed scale, and the error of the worst weight gradient",
                "Above: a plateau of 98 percent from 2^4 to 2^38 between two cliffs, with skipped "
                "steps beyond it. Below: the error of one batch's gradients falls long after the "
                "plateau has begun.",
                560);
  Panel& above = figure.panel(0, 0.55);
  above.x_axis(-3, 45, "", powers_of_two(0, 44, 4));
  above.y_axis(0, 104, "accuracy, skipped steps", numbers(0, 100, 20, " %"));
  above.line(skipped, Look::Orange, "skipped steps");
  above.line(accuracy, Look::Blue, "test accuracy");
  Panel& below = figure.panel(0.55, 1);
  below.x_axis(-3, 45, "scale", powers_of_two(0, 44, 4));
  below.y_axis(-3, 0.3, "relative error", powers_of_ten(-3, 0, true));
  below.line(error, Look::Green, "error of the worst weight gradient");
  write(arguments, figure, table);
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, "05_one_fixed_scale",
             "Which one scale, never changed, trains the network?", Seed::Taken, compare);
}
