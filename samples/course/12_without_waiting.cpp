// Chapter 12: a training whose optimizer steps on a thread of its own, with verdicts that come in
// time or a step late, and the points where the two threads meet.
#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "figure.h"
#include "meetings.h"

using namespace course;
using namespace halftape;
using amp::ScaleDelivery;

namespace {

/// 60 epochs of the digits with a scale that grows every 20 good steps. Without a delivery each
/// step waits for its own end.
void train(const char* name, std::optional<ScaleDelivery> delivery, uint64_t seed, Table& table) {
  Training t({.seed = seed});
  optim::AsyncOptimizer optimizer(
      std::make_unique<optim::Adam>(t.model->parameters(), optim::AdamOptions(1e-3)));
  amp::AsyncGradScaler scaler({.growth_interval = 20, .warn_after_skips = 0},
                              delivery.value_or(ScaleDelivery::Prompt));
  std::vector<optim::AsyncStep> steps;
  double mean = 0;
  for (int64_t i = 0; i < t.steps(); ++i) {
    t.next_batch();
    optimizer.param_groups()[0].options().set_lr(t.optimizer.param_groups()[0].options().get_lr());
    scaler.scale(t.loss()).backward();
    steps.push_back(scaler.step(optimizer, {.is_async = delivery.has_value()}));
    scaler.update();
    mean += std::log2(steps.back().scale()) / static_cast<double>(t.steps());
  }
  optimizer.synchronize();  // the model has the newest weights
  double skips = 0;
  for (const optim::AsyncStep& step : steps) skips += step.found_inf();
  table.add({name, skips, mean, t.accuracy()});
}

/// The two laws on steps that overflow above 64, whatever else happens.
void compare_laws(Panel& panel, Table& curves) {
  fmt::print("\nevery scale above 64 overflows\n");
  Table table({{"verdict"},
               {"skips of 100 steps from 65536", "{:.0f}"},
               {"skips of 60000", "{:.0f}"},
               {"mean log2(scale)", "{:.2f}"}});
  for (const bool late : {false, true}) {
    amp::laws::Law law = amp::laws::find(late ? "roundpipe" : "pytorch");
    const std::vector<double> limits(80000, 64);
    const auto cold = amp::laws::replay_limits(law, std::span(limits).first(100));
    const auto settled = amp::laws::summarise(amp::laws::replay_limits(law, limits), limits, 20000);
    const char* name = late ? "a step late" : "in time";
    table.add({name,
               static_cast<double>(amp::laws::summarise(cold, std::span(limits).first(100)).skips),
               static_cast<double>(settled.skips), settled.mean_log2_scale});
    law.constants.init_scale = 1024, law.constants.growth_interval = 20;
    const auto shown = amp::laws::replay_limits(law, std::span(limits).first(120));
    report::Points points;
    for (size_t i = 0; i < shown.scale.size(); ++i) {
      points.emplace_back(i, std::log2(shown.scale[i]));
      curves.add({name, static_cast<double>(i), shown.scale[i], shown.overflow[i] ? 1.0 : 0.0});
    }
    panel.line(points, late ? Look::Orange : Look::Blue, name, false);
  }
  table.print();
}

void body(const Arguments& arguments) {
  Table table(
      {{"step"}, {"skips", "{:.0f}"}, {"mean log2(scale)", "{:.2f}"}, {"accuracy", "{:.1f} %"}});
  train("waited for", {}, arguments.seed, table);
  train("in flight, Prompt", ScaleDelivery::Prompt, arguments.seed, table);
  train("in flight, Late", ScaleDelivery::Late, arguments.seed, table);
  table.print();

  Figure figure("The scale when every scale above 64 overflows, growth every 20 steps",
                "From 1024 both fall within a few steps. The law with verdicts in time returns to "
                "64 after each overflow; the late one goes on to 32, and needs 20 more steps to "
                "climb back.");
  Panel& panel = figure.panel();
  panel.x_axis(0, 120, "step", numbers(0, 120, 20));
  panel.y_axis(4, 10.2, "loss scale", powers_of_two(4, 10, 1));
  Table curves({{"verdict"}, {"step"}, {"scale"}, {"skipped"}});
  compare_laws(panel, curves);
  const Meetings meetings = meetings_of_a_step();
  fmt::print("\nthe meetings of one step, in flight\ncaller:{}\nworker:{}\n", meetings.of_caller,
             meetings.of_worker);
  write(arguments, figure, curves);
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, "12_without_waiting", "An optimizer on a thread of its own.", Seed::Taken,
             body);
}
