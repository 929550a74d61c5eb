// A training that an Inspector watches: its losses, its skips, and what was found.
#pragma once
#include <fmt/format.h>

#include <cmath>
#include <string>
#include <vector>

#include "figure.h"

namespace course {

using namespace halftape;

enum class Trouble { None, InjectedInf, OwnLoss };
struct Case {
  const char* name;
  Look look;
  Recipe recipe;
  Trouble trouble = Trouble::None;
};

struct Log {
  std::vector<double> losses, skips;  // of each step
  std::string findings;
};

/// Cross-entropy as its formula says it, with an exponential that stays in float16.
inline Tensor own_loss(const Tensor& scores, const Tensor& labels) {
  amp::Policy policy = amp::Policy::standard();
  policy.set("exp", Cast::Lower);
  const amp::autocast region(kCPU, kFloat16, policy);
  const Tensor e = exp(scores);
  return -log(e.gather(1, labels.unsqueeze(1)) / e.sum(1, true)).mean();
}

inline std::string text_of(const amp::Overflow& o) {
  constexpr const char* where[] = {"in the loss", "forward", "backward", "unscaling"};
  const double passes = o.largest_scale_that_passes.value_or(0);
  return fmt::format(
      "   first overflow, step {}, S = 2^{:g}: {}; {}; {}\n", o.step, std::log2(o.scale),
      o.op.empty() ? where[static_cast<int>(o.where)]
                   : fmt::format("{} {}", o.op, where[static_cast<int>(o.where)]),
      o.parameter,
      passes > 0 ? fmt::format("passes at 2^{:g}", std::log2(passes)) : "passes at no scale");
}

inline Log run_case(const Case& c) {
  Training t(c.recipe);
  const bool injects = c.trouble == Trouble::InjectedInf;
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
      return c.trouble == Trouble::OwnLoss ? own_loss(t.model->forward(batch.images), batch.labels)
                                           : t.loss();
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

}  // namespace course
