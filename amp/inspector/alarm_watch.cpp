#include "halftape/amp/inspector/alarm_watch.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "halftape/core/machine/warn.h"

namespace halftape::amp {
namespace {

std::string percent(double share) {
  std::ostringstream text;
  text.precision(share < 0.1 ? 2 : 3);
  text << 100 * share << " %";
  return text.str();
}

/// Nothing for options that have none.
std::optional<double> learning_rate(const optim::Optimizer* optimizer) {
  if (!optimizer || optimizer->param_groups().empty() ||
      !optimizer->param_groups()[0].has_options())
    return 0;
  try {
    return optimizer->param_groups()[0].options().get_lr();
  } catch (const Error&) {
    return {};
  }
}

int64_t updates_of(const GradScaler& scaler) {
  const ScalerStats stats = scaler.is_enabled() ? scaler.stats() : ScalerStats();
  return stats.steps - stats.skips;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Alarm& alarm) {
  out << "step " << alarm.step << ": ";
  if (!alarm.where.empty()) out << alarm.where << ": ";
  return out << alarm.text;
}

std::ostream& operator<<(std::ostream& out, const Overflow& o) {
  out << "step " << o.step << ", scale " << o.scale << ": ";
  const std::string place = o.op + (o.module.empty() ? "" : " in " + o.module);
  switch (o.where) {
    case Overflow::Where::Loss:
      out << "the loss is not finite";
      break;
    case Overflow::Where::Unscale:
      out << "a gradient is not finite once it is divided by the scale";
      break;
    case Overflow::Where::Forward:
    case Overflow::Where::Backward:
      out << place << " gave " << (o.nan ? "a NaN" : "an infinity") << " in " << o.dtype
          << (o.where == Overflow::Where::Forward ? ", forward" : ", backward");
  }
  if (!o.parameter.empty()) out << "; parameter " << o.parameter;
  if (!o.call_site.empty()) out << "; called at " << o.call_site;
  if (o.largest_scale_that_passes == 0.0) out << "; no scale passes";
  if (o.largest_scale_that_passes > 0.0) out << "; passes at " << *o.largest_scale_that_passes;
  return out;
}

AlarmWatch::AlarmWatch(AlarmOptions options, const GradScaler& scaler,
                       const optim::Optimizer* optimizer)
    : options_(std::move(options)),
      scaler_(scaler),
      optimizer_(optimizer),
      lr_(learning_rate(optimizer)),
      state_number_(scaler.state_number_),
      updates_before_(updates_of(scaler)) {}

/// `text` is made only for an alarm that is raised.
template <class Text>
void AlarmWatch::set(Alarm::Kind kind, int64_t step, const std::string& where, bool on,
                     double value, const Text& text) {
  if (!on) {
    raised_.erase({kind, where});
    return;
  }
  if (!raised_.insert({kind, where}).second) return;
  std::ostringstream advice;
  text(advice);
  all_.push_back({kind, step, where, value, advice.str()});
  if (options_.report) return options_.report(all_.back());
  warn(halftape::detail::str("Inspector: ", all_.back()));
}

void AlarmWatch::look_at(const std::vector<const LedgerRow*>& rows,
                         const std::vector<LedgerPlace>& places) {
  struct Module {
    double lost = 0, error = -1;
    bool any = false, all_zero = true, shadowed = false, lost_all = false;
    int64_t step = 0;
  };
  std::map<std::string, Module> modules;
  for (const LedgerRow* row : rows) {
    const LedgerPlace& place = places[row->place];
    Module& m =
        modules[place.kind == LedgerPlace::Kind::Parameter ? std::string(module_of(place.parameter))
                                                           : place.module];
    m.step = row->step;
    if (row->error) m.error = std::max(m.error, *row->error);
    if (place.kind == LedgerPlace::Kind::Parameter) continue;
    m.any = true;
    m.all_zero = m.all_zero && row->seen.zeros() == row->seen.total();
    const std::optional<double> lost = row->lost();
    if (!lost) continue;
    m.shadowed = true;
    m.lost = std::max(m.lost, *lost);
    m.lost_all = m.lost_all || row->seen.zeros() == row->seen.total();
  }
  for (const auto& entry : modules) {
    const Module& m = entry.second;
    if (!m.any) continue;
    if (m.error >= 0)
      set(Alarm::Kind::Lost, m.step, entry.first,
          m.lost > options_.lost && m.error > options_.error, m.error, [&](std::ostream& out) {
            out << percent(m.lost)
                << " of the gradients that arrive here become 0 in 16 bits, and a weight gradient "
                   "is off by "
                << percent(m.error)
                << (scaler_.is_enabled() ? "; raise init_scale, or let the scale grow sooner by a "
                                           "shorter growth_interval"
                                         : "; scale the loss with a GradScaler");
          });
    if (m.lost_all)
      lost_all_.insert(entry.first);
    else if (m.shadowed)
      lost_all_.erase(entry.first);
    set(Alarm::Kind::Dead, m.step, entry.first,
        m.all_zero && !lost_all_.contains(entry.first) &&
            !raised_.contains({Alarm::Kind::Lost, entry.first}),
        1, [](std::ostream& out) {
          out << "all gradients that arrive here are 0; look for a unit that is always off, a "
                 "detach(), a loss that does not depend on this module, or a scale that is far too "
                 "small";
        });
  }
}

void AlarmWatch::look_at_update(int64_t step, const std::string& parameter, Dtype dtype,
                                double unchanged) {
  set(Alarm::Kind::Stagnant, step, parameter, is_narrow(dtype) && unchanged > options_.stagnant,
      unchanged, [&](std::ostream& out) {
        out << "the update left " << percent(unchanged) << " of this " << dtype
            << " parameter as it was, being less than half a unit in the last place; keep a "
               "float32 copy (optim::Weights::Master), or round stochastically"
            << (optimizer_ ? "" : ", unless the optimizer does: InspectorOptions::optimizer");
      });
}

void AlarmWatch::look_at_schedule() {
  if (!lr_) return;
  const std::optional<double> lr = learning_rate(optimizer_);
  moves_ += lr != lr_;
  lr_ = lr;
}

void AlarmWatch::look_at_scaler(int64_t step) {
  if (!scaler_.is_enabled()) return;
  const ScalerStats stats = scaler_.stats();
  set(Alarm::Kind::SkipsInRow, step, "", stats.skips_in_row >= options_.skips_in_row,
      static_cast<double>(stats.skips_in_row), [&](std::ostream& out) {
        out << stats.skips_in_row
            << " steps in a row were skipped; overflows() names the first number that was not "
               "finite";
      });
  // A state that was loaded brings the counts of another training.
  if (std::exchange(state_number_, scaler_.state_number_) != scaler_.state_number_)
    moves_ = 0, updates_before_ = stats.steps - stats.skips;
  // The move of a step may come before or after the Inspector's look at it.
  const int64_t updates = stats.steps - stats.skips - updates_before_, ahead = moves_ - updates;
  set(Alarm::Kind::ScheduleAhead, step, "", ahead > 1, static_cast<double>(ahead),
      [&](std::ostream& out) {
        out << "the learning rate has moved " << moves_ << " times, the parameters " << updates
            << " times: the schedule moves at skipped steps, too; use amp::step_if_applied, or "
               "amp::AppliedSteps, which puts it back when it looks";
      });
  const GradScaler::StateDict state = scaler_.state_dict();
  const double scale = state.at("scale");
  const bool low = stats.skips > 0 && scale <= state.at("min_scale"),
             high = scale >= state.at("max_scale");
  set(Alarm::Kind::ScaleAtBound, step, "", state.at("growth_factor") > 1 && (low || high), scale,
      [&](std::ostream& out) {
        out << "the scale stands at " << (low ? "min_scale, " : "max_scale, ") << scale
            << (low ? "; if gradients overflow even there, look for a learning rate that is too "
                      "high, or lower min_scale"
                    : "; it would grow further: raise max_scale, unless the bound is meant");
      });
}

}  // namespace halftape::amp
