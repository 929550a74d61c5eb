// Chapter 6: how often should the scale grow?
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "figure.h"

using namespace course;

namespace {

constexpr int kTrainings = 5;

struct Path {
  report::Points scale, skips;  // log2 of the scale, where it changes; nan between skips
  int64_t skipped = 0, steps = 0;
  double accuracy = 0, last = 0;
};

Path train(double loss_weight, int64_t interval, uint64_t seed) {
  Training training({.loss_weight = loss_weight,
                     .scaler = {.growth_interval = interval, .enabled = true},
                     .seed = seed});
  Path path;
  double before = std::log2(training.scaler.get_scale());
  path.scale.push_back({0, before});
  for (path.steps = 1; path.steps <= training.steps(); ++path.steps) {
    const auto at = static_cast<double>(path.steps);
    if (!training.step()) {
      path.skips.push_back({at, before});
      path.skips.push_back({at, std::nan("")});
    }
    path.last = std::log2(training.scaler.get_scale());
    if (path.last != before) path.scale.push_back({at, before});
    if (path.last != before || path.steps == training.steps())
      path.scale.push_back({at, path.last});
    before = path.last;
  }
  path.skipped = training.scaler.stats().skips;
  path.accuracy = training.accuracy();
  return path;
}

void compare(const Arguments& arguments) {
  const uint64_t first = kTrainings * arguments.seed;
  Table table({{"weight"},
               {"growth interval"},
               {"steps"},
               {"skipped"},
               {"last scale"},
               {"accuracy", "{:.2f} %"}});
  Table curve({{"growth interval"}, {"step"}, {"log2 of the scale"}});
  Figure figure("The scale over one training, by how often it may grow",
                "Growing every 20 steps it climbs from 2^16 to 2^40, where it jumps up and down; "
                "every 200 steps it makes three steps; every 2000 steps it is a flat line.");
  Panel& panel = figure.panel();
  panel.x_axis(0, 720, "step", numbers(0, 720, 120));
  panel.y_axis(12, 44, "scale", powers_of_two(16, 40, 8));
  for (const double weight : {1e-5, 1.0})
    for (const int interval : {20, 200, 2000}) {
      double skipped = 0, steps = 0, accuracy = 0, least = 1e9, most = 0;
      for (int i = 0; i < kTrainings; ++i) {
        const Path path = train(weight, interval, first + static_cast<uint64_t>(i));
        skipped += static_cast<double>(path.skipped);
        steps += 720;
        accuracy += path.accuracy / kTrainings;
        least = std::min(least, path.last);
        most = std::max(most, path.last);
        if (weight == 1 || i > 0) continue;
        const Look look = interval == 20 ? Look::Blue : interval == 200 ? Look::Green : Look::Ink;
        panel.line(path.scale, look, fmt::format("every {} steps", interval), false);
        if (!path.skips.empty()) panel.line(path.skips, Look::Orange, "skipped step");
        for (const auto& [step, scale] : path.scale) curve.add({1.0 * interval, step, scale});
      }
      table.add(
          {weight, 1.0 * interval, steps, skipped,
           least == most ? fmt::format("2^{}", most) : fmt::format("2^{} to 2^{}", least, most),
           accuracy});
    }
  fmt::print("{} trainings of 60 epochs each, seeds {} to {}\n", kTrainings, first,
             first + kTrainings - 1);
  table.print();
  write(arguments, figure, curve);
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, "06_a_scale_that_moves", "How often should the scale grow?", Seed::Taken,
             compare);
}
