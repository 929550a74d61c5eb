// Chapter 12: a training whose optimizer steps on a thread of its own, with verdicts that come in
// time or a step late, and the points where the two threads meet.
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <thread>

#include "figure.h"

using namespace halftape;
using amp::ScaleDelivery;
using course::Look;

namespace {

/// 60 epochs of the digits with a scale that grows every 20 good steps. Without a delivery each
/// step waits for its own end.
void train(const char* name, std::optional<ScaleDelivery> delivery, uint64_t seed,
           course::Table& table) {
  course::Training t({.seed = seed});
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

const std::thread::id kCaller = std::this_thread::get_id();
std::string by_caller, by_worker;  // the meetings of either thread, in its own order

/// Where the two threads of one step meet, in the order of either thread.
void show_meetings() {
  const auto hook = [](optim::Meeting m) {
    constexpr const char* names[] = {"wait-for-step",   "copy-weights", "hand-over",       "check",
                                     "publish-verdict", "update",       "wait-for-verdict"};
    std::string& log = std::this_thread::get_id() == kCaller ? by_caller : by_worker;
    log += fmt::format(" {}", names[static_cast<int>(m)]);
  };
  const Tensor w = ones({3}, requires_grad());
  optim::AsyncOptimizer optimizer(
      std::make_unique<optim::SGD>(std::vector{w}, optim::SGDOptions(0.1)));
  amp::AsyncGradScaler scaler;
  for (const bool noted : {false, true}) {
    optimizer.drain();
    if (noted) optim::set_meeting_hook(hook);
    scaler.scale((w * w).sum()).backward();
    scaler.step(optimizer);
    scaler.update();
  }
  const std::string caller = by_caller;
  optimizer.drain();
  optim::set_meeting_hook(nullptr);
  fmt::print("\nthe meetings of one step, in flight\ncaller:{}\nworker:{}\n", caller, by_worker);
}

/// The two laws on steps that overflow above 64, whatever else happens.
void compare_laws(course::Panel& panel, course::Table& curves) {
  fmt::print("\nevery scale above 64 overflows\n");
  course::Table table({{"verdict"},
                       {"skips of 100 steps from 65536", "{:.0f}"},
                       {"skips of 60000", "{:.0f}"},
                       {"mean log2(scale)", "{:.2f}"}});
  for (const bool late : {false, true}) {
    amp::laws::Law law = amp::laws::find(late ? "roundpipe" : "pytorch");
    const std::vector<double> limits(80000, 64);
    const auto cold = amp::laws::replay_limits(law, std::span(limits).first(100));
    const auto settled = amp::laws::summarise(amp::laws::replay_limits(law, limits), limits, 20000);
    const char* name = late ? "a step late" : "in time";
    table.add(
        {name,
         1.0 * static_cast<double>(amp::laws::summarise(cold, std::span(limits).first(100)).skips),
         1.0 * static_cast<double>(settled.skips), settled.mean_log2_scale});
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

void body(const course::Arguments& arguments) {
  course::Table table(
      {{"step"}, {"skips", "{:.0f}"}, {"mean log2(scale)", "{:.2f}"}, {"accuracy", "{:.1f} %"}});
  train("waited for", {}, arguments.seed, table);
  train("in flight, Prompt", ScaleDelivery::Prompt, arguments.seed, table);
  train("in flight, Late", ScaleDelivery::Late, arguments.seed, table);
  table.print();

  course::Figure figure("The scale when every scale above 64 overflows, growth every 20 steps",
                        "From 1024 both fall within a few steps. The law with verdicts in time "
                        "returns to 64 after each overflow; the late one goes on to 32, and needs "
                        "20 more steps to climb back.");
  course::Panel& panel = figure.panel();
  panel.x_axis(0, 120, "step", course::numbers(0, 120, 20));
  panel.y_axis(4, 10.2, "loss scale", course::powers_of_two(4, 10, 1));
  course::Table curves({{"verdict"}, {"step"}, {"scale"}, {"skipped"}});
  compare_laws(panel, curves);
  show_meetings();
  course::write(arguments, figure, curves);
}

}  // namespace

int main(int argc, char** argv) {
  return course::run(argc, argv, "12_without_waiting", "An optimizer on a thread of its own.",
                     course::Seed::Taken, body);
}
