#include "observe.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "program.h"
#include "progress_line.h"
#include "verdict.h"

using namespace halftape;

namespace lab {
namespace {

constexpr int64_t kMostSamples = 1000;  // a sample of a small GPT takes a megabyte

class Observer {
 public:
  Observer(Training& training, const ObserveOptions& options, LabRun& run)
      : training_(training),
        options_(options),
        run_(run),
        steps_(options.steps_file),
        scaler_(options.scaler),
        progress_(training.steps()),
        inspector_(training.model(), scaler_, inspector_options()) {
    run_.planned_steps = training.steps();
    run_.measure = training.measure_name();
  }

  void train() {
    const sample::Interrupt ctrl_c;
    const int64_t middle = (run_.planned_steps + 1) / 2;
    int64_t n = 0;
    while (n < run_.planned_steps && !ctrl_c.asked()) {
      step();
      ++n;
      if (training_.measures_after(n)) run_.measures.push_back({n, training_.measure()});
      if (n == middle && n < run_.planned_steps) try_scales();
      progress_.show(n, text());
    }
    if (n == 0) return;
    if (run_.measures.empty() || run_.measures.back().step != n)
      run_.measures.push_back({n, training_.measure()});
    if (run_.trials.empty() || run_.trials.back().step != n) try_scales();
    take();
  }

 private:
  amp::InspectorOptions inspector_options() {
    amp::InspectorOptions o;
    o.every = options_.every;
    o.shadow_every = options_.shadow_every;
    o.kept = std::min(kMostSamples, training_.steps() / options_.every + 1);
    o.optimizer = &training_.optimizer();
    o.alarms.report = [this](const amp::Alarm& alarm) {
      std::ostringstream text;
      text << "alarm: " << alarm;
      progress_.print(text.str());
    };
    return o;
  }

  void step() {
    training_.next_batch();
    training_.optimizer().zero_grad();
    const Tensor loss = training_.loss();
    scaler_.scale(loss).backward();
    training_.before_step(scaler_);
    const double scale = scaler_.get_scale();
    const amp::StepResult result = scaler_.step(training_.optimizer());
    run_.steps.push_back({loss.item<double>() / run_.loss_weight, scale, !result.applied()});
    const LabRun::Step& last = run_.steps.back();
    steps_.write({{"step", run_.steps.size() - 1},
                  {"loss", last.loss},
                  {"scale", last.scale},
                  {"skipped", int{last.skipped}}});
    scaler_.update();
    inspector_.step([this] { return training_.loss(); });
  }

  void try_scales() {
    if (run_.dtype == kFloat32) return;
    run_.trials.push_back(
        {static_cast<int64_t>(run_.steps.size()), scaler_.get_scale(),
         amp::try_scales(
             training_.model(), [this] { return training_.loss_of_fixed_batch(); },
             options_.first_exponent, options_.last_exponent)});
  }

  std::string text() const {
    const LabRun::Step& last = run_.steps.back();
    std::string text = fmt::format("loss {:.3f}", last.loss);
    if (run_.scaled) text += fmt::format(", scale {}", power_text(last.scale));
    if (!run_.measures.empty())
      text += fmt::format(", {} {:.4g}", run_.measure, run_.measures.back().value);
    return text;
  }

  void take() {
    run_.places = inspector_.places();
    run_.totals = inspector_.totals();
    run_.rows.assign(inspector_.rows().begin(), inspector_.rows().end());
    run_.overflows.assign(inspector_.overflows().begin(), inspector_.overflows().end());
    run_.alarms = inspector_.alarms();
  }

  Training& training_;
  const ObserveOptions& options_;
  LabRun& run_;
  RunLog steps_;
  amp::GradScaler scaler_;
  sample::ProgressLine progress_;
  amp::Inspector inspector_;
};

}  // namespace

void observe(Training& training, const ObserveOptions& options, LabRun& run) {
  Observer(training, options, run).train();
}

}  // namespace lab
