#include "halftape/amp/scaler_base.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "halftape/amp/agreement.h"
#include "halftape/autograd/tape/grad_tag.h"

namespace halftape::amp {
namespace {

/// The lower bound, rounded as the scale is. Below the smallest normal float 1/scale is infinite:
/// no gradient could be unscaled, and the scale would never come back.
double least_scale(double asked) {
  constexpr double least = std::numeric_limits<float>::min();
  return asked >= 0 && asked < least ? least : static_cast<float>(asked);
}

ScaleLaw law_of(const GradScalerOptions& o) {
  ScaleLaw law;
  law.growth_factor = o.growth_factor;
  law.backoff_factor = o.backoff_factor;
  law.growth_interval = o.growth_interval;
  law.hysteresis = o.hysteresis;
  law.refill = o.refill;
  // Bounds are rounded as the scale is: a scale that stands at one of them can be loaded again.
  law.min_scale = least_scale(o.min_scale.value_or(0));
  if (o.max_scale) law.max_scale = static_cast<float>(*o.max_scale);
  return law;
}

constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

bool is_fixed(const ScaleLaw& law) { return law.growth_factor == 1 && law.backoff_factor == 1; }

template <class T>
void set_constant(ScaleLaw& law, T ScaleLaw::*constant, T value) {
  ScaleLaw changed = law;
  changed.*constant = value;
  HALFTAPE_CHECK(!is_fixed(law) || is_fixed(changed),
                 "GradScaler: neither factor of a fixed scale can be changed alone; make another "
                 "GradScaler with both");
  check_law(changed);
  law = changed;
}

}  // namespace

std::string skip_warning(const char* scaler, int64_t in_row, float scale, bool bad_loss) {
  return halftape::detail::str(
      scaler, ": ", in_row, " steps in a row were skipped, the scale is ", scale,
      bad_loss ? "; the loss itself is infinite or NaN, which no scale cures"
               : "; scaler.stats().nonfinite names the first gradient that is not finite");
}

std::ostream& operator<<(std::ostream& out, const ScalerStats& s) {
  out << s.steps << (s.steps == 1 ? " step, " : " steps, ") << s.skips << " skipped ("
      << s.skips_in_row << " in a row, " << s.bad_losses << " by the loss); scale grew "
      << s.growths << "x, backed off " << s.backoffs << "x";
  if (const auto& p = s.nonfinite)
    out << "; not finite in the last skip: parameter " << p->index << " of optimizer "
        << p->optimizer << ", in group " << p->group << ", " << p->shape;
  return out;
}

ScalerBase::ScalerBase(const GradScalerOptions& options)
    : options_(options), law_(law_of(options)) {
  if (!options.enabled) return;
  check_law(law_);
  check_scale(options.init_scale, law_);
  HALFTAPE_CHECK(options.warn_after_skips >= 0 && options.throw_after_skips >= 0,
                 "GradScaler: warn_after_skips ", options.warn_after_skips,
                 " and throw_after_skips ", options.throw_after_skips,
                 " must not be negative; 0 is never");
  GradTag::enable();
}

void ScalerBase::tell_disabled(std::span<const Tensor> parameters, int64_t flags) {
  if (!told_disabled_) told_disabled_ = agree_disabled(parameters, flags);
}
void ScalerBase::set_growth_factor(double factor) {
  set_constant(law_, &ScaleLaw::growth_factor, factor);
}
void ScalerBase::set_backoff_factor(double factor) {
  set_constant(law_, &ScaleLaw::backoff_factor, factor);
}
void ScalerBase::set_growth_interval(int64_t interval) {
  set_constant(law_, &ScaleLaw::growth_interval, interval);
}

void check_law(const ScaleLaw& law) {
  const bool fixed = is_fixed(law);
  HALFTAPE_CHECK(fixed || (law.growth_factor > 1 && std::isfinite(law.growth_factor)),
                 "GradScaler: growth_factor ", law.growth_factor,
                 " must be greater than 1 (or 1 with backoff_factor 1, for a fixed scale)");
  HALFTAPE_CHECK(fixed || (law.backoff_factor > 0 && law.backoff_factor < 1),
                 "GradScaler: backoff_factor ", law.backoff_factor, " must lie between 0 and 1");
  HALFTAPE_CHECK(law.growth_interval > 0 && law.growth_interval <= kMost,
                 "GradScaler: growth_interval ", law.growth_interval,
                 " must be positive and below 2^31; for a scale that never grows use "
                 "GradScalerOptions::fixed()");
  HALFTAPE_CHECK(law.hysteresis > 0 && law.hysteresis <= kMost, "GradScaler: hysteresis ",
                 law.hysteresis, " must be positive and below 2^31");
  HALFTAPE_CHECK(law.min_scale >= 0 && law.min_scale <= law.max_scale &&
                     law.max_scale <= std::numeric_limits<float>::max(),
                 "GradScaler: min_scale ", law.min_scale, " and max_scale ", law.max_scale,
                 " are not an interval of float32");
}

void check_scale(double scale, const ScaleLaw& law) {
  const double kept = static_cast<float>(scale);
  HALFTAPE_CHECK(std::isfinite(kept) && kept > 0, "GradScaler: scale ", scale,
                 " must be positive and finite in float32");
  HALFTAPE_CHECK(kept >= law.min_scale && kept <= law.max_scale, "GradScaler: scale ", scale,
                 " lies outside of [", law.min_scale, ", ", law.max_scale,
                 "], min_scale and max_scale");
}

int64_t OptimizerRegistry::number_of(uint64_t id,
                                     const std::vector<optim::OptimizerParamGroup>& groups) {
  auto entry =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.id == id; });
  if (entry == entries_.end()) entry = entries_.insert(entry, {id, {}});
  entry->parameters.clear();
  for (size_t g = 0; g < groups.size(); ++g)
    for (const Tensor& p : groups[g].params()) entry->parameters.emplace_back(g, p.sizes());
  return entry - entries_.begin();
}

ScalerStats OptimizerRegistry::stats(const ScaleCounts& c) const {
  ScalerStats s{c.steps, c.skips, c.skips_in_row, c.bad_losses, c.growths, c.backoffs, {}};
  if (c.position < 0) return s;
  const auto optimizer = static_cast<size_t>(c.list), index = static_cast<size_t>(c.position);
  if (index >= entries_[optimizer].parameters.size()) return s;  // its groups were changed by hand
  const auto& [group, shape] = entries_[optimizer].parameters[index];
  s.nonfinite = {optimizer, index, group, shape};
  return s;
}

// --- The saved state.

namespace {

using optim::StateFields;
constexpr optim::NumberRange kCount{0, kMost, true, true}, kPositive{1, kMost, true, true};

void torch_fields(StateFields& f, SavedScaler& s, double& scale) {
  f.owner = "GradScaler::load_state_dict";
  f.add("scale", scale);
  f.add("growth_factor", s.law.growth_factor);
  f.add("backoff_factor", s.law.backoff_factor);
  f.add("growth_interval", s.law.growth_interval, kPositive);
  f.add("_growth_tracker", s.state.growth_tracker, {0, kMost});
}

/// What torch lacks.
void own_fields(StateFields& f, SavedScaler& s) {
  auto& [law, state, counts] = s;
  f.owner = "GradScaler::load_state_dict";
  f.add("min_scale", law.min_scale);
  f.add("max_scale", law.max_scale);
  f.add("hysteresis", law.hysteresis, kPositive);
  f.add("refilled_by_growth", law.refill, optim::kFraction);
  f.add("_overflows", state.overflows, kCount);
  f.add("_steps", counts.steps, optim::kNonNegative);
  f.add("_skips", counts.skips, optim::kNonNegative);
  f.add("_skips_in_row", counts.skips_in_row, optim::kNonNegative);
  f.add("_bad_losses", counts.bad_losses, optim::kNonNegative);
  f.add("_growths", counts.growths, optim::kNonNegative);
  f.add("_backoffs", counts.backoffs, optim::kNonNegative);
}

}  // namespace

StateFields::Numbers to_dict(SavedScaler scaler) {
  double scale = scaler.state.scale;
  return StateFields([&](StateFields& f) {
           torch_fields(f, scaler, scale);
           own_fields(f, scaler);
         })
      .save();
}

SavedScaler from_dict(const StateFields::Numbers& saved, const ScaleLaw& current) {
  HALFTAPE_CHECK(
      !saved.empty(),
      "GradScaler::load_state_dict: the saved state is empty; was it saved by a disabled scaler?");
  SavedScaler scaler{current, {}, {}};
  auto& law = scaler.law;
  double scale = 0;
  StateFields([&](StateFields& f) {
    torch_fields(f, scaler, scale);
  }).load(saved, StateFields::Unknown::Ignore);
  // One of our own fields shows that torch did not save this: then all of them must be there.
  const StateFields own([&](StateFields& f) { own_fields(f, scaler); });
  if (std::any_of(own.all().begin(), own.all().end(),
                  [&](const auto& field) { return saved.contains(field.name); }))
    own.load(saved, StateFields::Unknown::Ignore);
  law.min_scale = least_scale(law.min_scale);
  law.max_scale = static_cast<float>(law.max_scale);
  check_law(law);
  check_scale(scale, law);
  const ScaleCounts& n = scaler.counts;
  HALFTAPE_CHECK(n.skips <= n.steps && n.skips_in_row <= n.skips && n.bad_losses <= n.skips &&
                     n.growths <= n.steps && n.backoffs <= n.steps,
                 "GradScaler::load_state_dict: the counts contradict each other: ", n.steps,
                 " steps, ", n.skips, " skips, ", n.skips_in_row, " of them in a row, ",
                 n.bad_losses, " bad losses, ", n.growths, " growths, ", n.backoffs, " backoffs");
  scaler.state.scale = static_cast<float>(scale);
  return scaler;
}

}  // namespace halftape::amp
