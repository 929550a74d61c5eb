// Chapter 13: four trainings in which something is wrong, or seems to be: their logs, and what an
// Inspector found.
#include <fmt/format.h>

#include <cmath>

#include "figure.h"

using namespace halftape;
using course::Look;

namespace {

constexpr size_t kBlock = 120;  // steps in a line of the log

struct Case {
  const char* name;
  Look look;
  course::Recipe recipe;
};

struct Log {
  std::vector<double> losses, skips;  // of each step
  std::string findings;
};

/// Cross-entropy as its formula says it, with an exponential that stays in float16.
Tensor own_loss(const Tensor& scores, const Tensor& labels) {
  amp::Policy policy = amp::Policy::standard();
  policy.set("exp", Cast::Lower);
  const amp::autocast region(kCPU, kFloat16, policy);
  const Tensor e = exp(scores);
  return -log(e.gather(1, labels.unsqueeze(1)) / e.sum(1, true)).mean();
}

std::string text_of(const amp::Overflow& o) {
  constexpr const char* where[] = {"in the loss", "forward", "backward", "unscaling"};
  const double passes = o.largest_scale_that_passes.value_or(0);
  return fmt::format(
      "   first overflow, step {}, S = 2^{:g}: {}; {}; {}\n", o.step, std::log2(o.scale),
      o.op.empty() ? where[static_cast<int>(o.where)]
                   : fmt::format("{} {}", o.op, where[static_cast<int>(o.where)]),
      o.parameter,
      passes > 0 ? fmt::format("passes at 2^{:g}", std::log2(passes)) : "passes at no scale");
}

Log run_case(const Case& c) {
  course::Training t(c.recipe);
  const bool injects = *c.name == 'B', writes_own_loss = *c.name == 'C';
  const auto fault = amp::inject({.step = injects ? 40 : 1 << 30, .parameter = "fc2.weight"},
                                 t.model->named_parameters().pairs());
  amp::Inspector inspector(
      *t.model, t.scaler,
      {.shadow_every = 0, .optimizer = &t.optimizer, .alarms = {.report = [](const auto&) {}}});
  Log log;
  for (int64_t step = 0; step < t.steps(); ++step) {
    const sample::Samples& batch = t.next_batch();
    const auto loss_of = [&] {
      const amp::autocast region(kCPU, kFloat16);
      return writes_own_loss ? own_loss(t.model->forward(batch.images), batch.labels) : t.loss();
    };
    t.optimizer.zero_grad();
    const Tensor loss = loss_of();
    t.scaler.scale(loss).backward();
    log.skips.push_back(t.scaler.step(t.optimizer).found_inf());
    t.scaler.update();
    inspector.step(loss_of);
    log.losses.push_back(loss.item<double>());
  }
  log.findings = fmt::format("{}: the scale ends at 2^{:g}, accuracy {:.1f} %\n", c.name,
                             std::log2(t.scaler.get_scale()), t.accuracy());
  if (!inspector.overflows().empty()) log.findings += text_of(inspector.overflows().front());
  if (!inspector.alarms().empty()) {
    const amp::Alarm& alarm = inspector.alarms().front();
    log.findings +=
        fmt::format("   first alarm, step {}: {}{}{}\n", alarm.step, alarm.where,
                    alarm.where.empty() ? "" : ": ", alarm.text.substr(0, alarm.text.find(';')));
  }
  return log;
}

/// The mean of the numbers in `all` from `first` on that are finite.
double mean_of(const std::vector<double>& all, size_t first, size_t count) {
  double sum = 0, n = 0;
  for (size_t i = first; i < first + count; ++i)
    if (std::isfinite(all[i])) sum += all[i], ++n;
  return sum / n;
}

void body(const course::Arguments& arguments) {
  const amp::GradScalerOptions steady{.init_scale = 65536};
  const Case cases[] = {
      {"A", Look::Blue, {.scaler = {.init_scale = 0x1p21, .growth_interval = 20}}},
      {"B", Look::Green, {.scaler = steady}},
      {"C", Look::Orange, {.scaler = steady}},
      {"D", Look::Purple, {.scaler = steady, .lr = 1}}};
  course::Figure figure("Four runs",
                        "Above, the losses: A, B and C fall alike, and D stays at 2.3. Below, the "
                        "share of skipped steps: a few per cent for A, one step for B, more and "
                        "more for C, none for D.",
                        560);
  course::Panel &above = figure.panel(0, 0.5), &below = figure.panel(0.5, 1);
  above.x_axis(0, 720, "step", course::numbers(0, 720, 120));
  above.y_axis(-2, 3.5, "loss", course::powers_of_ten(-2, 3));
  below.x_axis(0, 720, "step", course::numbers(0, 720, 120));
  below.y_axis(0, 100, "skipped, of 20 steps", course::numbers(0, 100, 25, " %"));
  std::vector<course::Table::Column> columns{{"steps to", "{:.0f}"}};
  std::vector<Log> logs;
  course::Table curves({{"run"}, {"step"}, {"loss"}, {"skipped percent"}});
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
  course::Table table(columns);
  for (size_t first = 0; first < logs[0].losses.size(); first += kBlock) {
    std::vector<course::Table::Cell> row{static_cast<double>(first + kBlock)};
    for (const Log& log : logs)
      row.insert(row.end(),
                 {mean_of(log.losses, first, kBlock), kBlock * mean_of(log.skips, first, kBlock)});
    table.add(row);
  }
  table.print();
  for (const Log& log : logs) fmt::print("\n{}", log.findings);
  course::write(arguments, figure, curves);
}

}  // namespace

int main(int argc, char** argv) {
  return course::run(argc, argv, "13_a_run_that_diverges", "Four runs, and what is wrong in them.",
                     course::Seed::Taken, body);
}
