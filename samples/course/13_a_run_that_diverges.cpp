// Chapter 13: four trainings in which something is wrong, or seems to be: their logs, and what an
// Inspector found.
#include <fmt/format.h>

#include <cmath>

#include "figure.h"
#include "inspected_run.h"

using namespace course;
using namespace halftape;

namespace {

constexpr size_t kBlock = 120;  // steps in a line of the log

/// The mean of the numbers in `all` from `first` on that are finite.
double mean_of(const std::vector<double>& all, size_t first, size_t count) {
  double sum = 0, n = 0;
  for (size_t i = first; i < first + count; ++i)
    if (std::isfinite(all[i])) sum += all[i], ++n;
  return sum / n;
}

void body(const Arguments& arguments) {
  const amp::GradScalerOptions steady{.init_scale = 65536};
  const Case cases[] = {
      {"A", Look::Blue, {.scaler = {.init_scale = 0x1p21, .growth_interval = 20}}},
      {"B", Look::Green, {.scaler = steady}, Trouble::InjectedInf},
      {"C", Look::Orange, {.scaler = steady}, Trouble::OwnLoss},
      {"D", Look::Purple, {.scaler = steady, .lr = 1}}};
  Figure figure("Four runs",
                "Above, the losses: A, B and C fall alike, and D stays at 2.3. Below, the share "
                "of skipped steps: a few per cent for A, one step for B, more and more for C, none "
                "for D.",
                560);
  Panel &above = figure.panel(0, 0.5), &below = figure.panel(0.5, 1);
  above.x_axis(0, 720, "step", numbers(0, 720, 120));
  above.y_axis(-2, 3.5, "loss", powers_of_ten(-2, 3));
  below.x_axis(0, 720, "step", numbers(0, 720, 120));
  below.y_axis(0, 100, "skipped, of 20 steps", numbers(0, 100, 25, " %"));
  std::vector<Table::Column> columns{{"steps to", "{:.0f}"}};
  std::vector<Log> logs;
  Table curves({{"run"}, {"step"}, {"loss"}, {"skipped percent"}});
  for (Case c : cases) {
    c.recipe.seed = arguments.seed;
    const Log& log = logs.emplace_back(run_case(c));
    columns.push_back({fmt::format("{}: loss", c.name), "{:.3f}"});
    columns.push_back({"skips", "{:.0f}"});
    report::Points losses, skips;
    for (size_t i = 0; i < log.losses.size(); i += 20) {
      losses.emplace_back(i + 10, std::log10(mean_of(log.losses, i, 20)));
      skips.emplace_back(i + 10, 100 * mean_of(log.skips, i, 20));
      curves.add(
          {c.name, static_cast<double>(i + 10), mean_of(log.losses, i, 20), skips.back().second});
    }
    above.line(losses, c.look, c.name, false);
    below.line(skips, c.look, c.name, false);
  }
  Table table(columns);
  for (size_t first = 0; first < logs[0].losses.size(); first += kBlock) {
    std::vector<Table::Cell> row{static_cast<double>(first + kBlock)};
    for (const Log& log : logs)
      row.insert(row.end(),
                 {mean_of(log.losses, first, kBlock), kBlock * mean_of(log.skips, first, kBlock)});
    table.add(row);
  }
  table.print();
  for (const Log& log : logs) fmt::print("\n{}", log.findings);
  write(arguments, figure, curves);
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, "13_a_run_that_diverges", "Four runs, and what is wrong in them.",
             Seed::Taken, body);
}
