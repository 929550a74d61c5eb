#include "halftape/amp/scaler_state.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iterator>
#include <string_view>

#include "halftape/core/capture/capture.h"
#include "halftape/core/contract/backend.h"

namespace halftape::amp {
namespace {

constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
constexpr double kLargest = std::numeric_limits<float>::max();
/// The largest integer below which a double holds all of them.
constexpr double kExact = 0x1p53;

template <class T, size_t N>
std::array<T, N> read(const Array& a) {
  std::array<T, N> host;
  backend(a.device()).read(host.data(), a);
  return host;
}

/// Numbers by name; what is missing or out of range is named.
class Reader {
 public:
  explicit Reader(const GradScaler::StateDict& saved) : saved_(saved) {}
  double number(const char* key) const {
    const auto found = saved_.find(key);
    HALFTAPE_CHECK(found != saved_.end(), "GradScaler::load_state_dict: \"", key, "\" is missing");
    return found->second;
  }
  int64_t integer(const char* key, double low, double high) const {
    const double x = number(key);
    HALFTAPE_CHECK(x >= low && x <= high && x == std::floor(x), "GradScaler::load_state_dict: \"",
                   key, "\" is ", x, ", not a whole number from ", low, " to ", high);
    return static_cast<int64_t>(x);
  }

 private:
  const GradScaler::StateDict& saved_;
};

bool is_torchs(std::string_view key) {
  constexpr std::string_view all[] = {"scale", "growth_factor", "backoff_factor", "growth_interval",
                                      "_growth_tracker"};
  return std::find(std::begin(all), std::end(all), key) != std::end(all);
}

/// As the scale itself is kept: no history leaves the bounds, and a scale that stands at one of
/// them can be loaded again.
double in_float32(double scale) { return static_cast<float>(scale); }

}  // namespace

ScalerLaw law_of(const GradScalerOptions& o) {
  ScalerLaw law;
  law.growth_factor = o.growth_factor;
  law.backoff_factor = o.backoff_factor;
  law.growth_interval = o.growth_interval;
  law.hysteresis = o.hysteresis;
  law.refill = o.refill;
  if (o.min_scale) law.min_scale = in_float32(*o.min_scale);
  if (o.max_scale) law.max_scale = in_float32(*o.max_scale);
  return law;
}

void check_law(const ScalerLaw& law) {
  const bool fixed = law.growth_factor == 1 && law.backoff_factor == 1;
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
  HALFTAPE_CHECK(law.min_scale >= 0 && law.min_scale <= law.max_scale && law.max_scale <= kLargest,
                 "GradScaler: min_scale ", law.min_scale, " and max_scale ", law.max_scale,
                 " are not an interval of float32");
}

void check_scale(double scale, const ScalerLaw& law) {
  HALFTAPE_CHECK(std::isfinite(static_cast<float>(scale)) && static_cast<float>(scale) > 0,
                 "GradScaler: scale ", scale, " must be positive and finite in float32");
  const double kept = in_float32(scale);
  HALFTAPE_CHECK(kept >= law.min_scale && kept <= law.max_scale, "GradScaler: scale ", scale,
                 " lies outside of [", law.min_scale, ", ", law.max_scale,
                 "], min_scale and max_scale");
}

void check_options(const GradScalerOptions& o) {
  const ScalerLaw law = law_of(o);
  check_law(law);
  check_scale(o.init_scale, law);
  HALFTAPE_CHECK(o.warn_after_skips >= 0 && o.throw_after_skips >= 0,
                 "GradScaler: warn_after_skips ", o.warn_after_skips, " and throw_after_skips ",
                 o.throw_after_skips, " must not be negative; 0 is never");
}

GradScaler::GradScaler(GradScalerOptions options) : options_(options), law_(law_of(options)) {
  if (!options_.enabled) return;
  check_options(options_);
  initial_.scale = static_cast<float>(options_.init_scale);
  until_look_ = options_.throw_after_skips;
  GradTag::enable();
}

void GradScaler::create_state(Device device) {
  const LastingState lasting;
  scale_ = Array({}, kFloat32, device);
  trackers_ = Array({2}, kInt32, device);
  counts_ = Array({8}, kInt64, device);
  fill_state(initial_, initial_counts_);
}

void GradScaler::fill_state(const ScalerState& state, const ScalerCounts& counts) {
  Backend& device = backend(scale_.device());
  device.fill(scale_, state.scale);
  scale_.bump_version();
  device.fill(trackers_.slice(0, 0, 1), state.growth_tracker);
  device.fill(trackers_.slice(0, 1, 2), state.overflows);
  for (int64_t i = 0; const int64_t n : std::bit_cast<std::array<int64_t, 8>>(counts))
    device.fill(counts_.slice(0, i, i + 1), n), ++i;
}

ScalerState GradScaler::state() const {
  if (!initialised()) return initial_;
  const auto trackers = read<int32_t, 2>(trackers_);
  return {read<float, 1>(scale_)[0], trackers[0], trackers[1]};
}

ScalerCounts GradScaler::counts() const {
  return initialised() ? std::bit_cast<ScalerCounts>(read<int64_t, 8>(counts_)) : initial_counts_;
}

double GradScaler::get_scale() const {
  if (!options_.enabled) return 1;
  return initialised() ? read_double(scale_) : initial_.scale;
}

int64_t GradScaler::get_growth_tracker() const { return state().growth_tracker; }

void GradScaler::set_growth_factor(double factor) {
  change(law_, &ScalerLaw::growth_factor, factor);
}
void GradScaler::set_backoff_factor(double factor) {
  change(law_, &ScalerLaw::backoff_factor, factor);
}
void GradScaler::set_growth_interval(int64_t interval) {
  change(law_, &ScalerLaw::growth_interval, interval);
}

ScalerStats GradScaler::stats() const { return met_.stats(counts()); }

GradScaler::StateDict to_dict(const SavedScaler& scaler) {
  const auto& [law, s, c] = scaler;
  auto number = [](int64_t n) { return static_cast<double>(n); };
  return {{"scale", s.scale},
          {"growth_factor", law.growth_factor},
          {"backoff_factor", law.backoff_factor},
          {"growth_interval", number(law.growth_interval)},
          {"_growth_tracker", number(s.growth_tracker)},
          {"min_scale", law.min_scale},
          {"max_scale", law.max_scale},
          {"hysteresis", number(law.hysteresis)},
          {"refilled_by_growth", law.refill == Hysteresis::RefilledByGrowth ? 1.0 : 0.0},
          {"_overflows", number(s.overflows)},
          {"_steps", number(c.steps)},
          {"_skips", number(c.skips)},
          {"_skips_in_row", number(c.skips_in_row)},
          {"_bad_losses", number(c.bad_losses)},
          {"_growths", number(c.growths)},
          {"_backoffs", number(c.backoffs)}};
}

SavedScaler from_dict(const GradScaler::StateDict& saved, const ScalerLaw& now) {
  HALFTAPE_CHECK(
      !saved.empty(),
      "GradScaler::load_state_dict: the saved state is empty; was it saved by a disabled scaler?");
  const Reader read(saved);
  SavedScaler scaler{now, {}, {}};
  auto& [law, state, counts] = scaler;
  // All of what torch's state lacks, or none of it: then it is torch's.
  const auto known = to_dict({now, {}, {}});
  const bool ours = std::any_of(known.begin(), known.end(), [&](const auto& entry) {
    return !is_torchs(entry.first) && saved.contains(entry.first);
  });
  const double scale = read.number("scale");
  law.growth_factor = read.number("growth_factor");
  law.backoff_factor = read.number("backoff_factor");
  law.growth_interval = read.integer("growth_interval", 1, kMost);
  state.growth_tracker = static_cast<int32_t>(read.integer("_growth_tracker", 0, kMost - 1));
  if (ours) {
    law.min_scale = in_float32(read.number("min_scale"));
    law.max_scale = in_float32(read.number("max_scale"));
    law.hysteresis = read.integer("hysteresis", 1, kMost);
    law.refill = read.integer("refilled_by_growth", 0, 1) != 0 ? Hysteresis::RefilledByGrowth
                                                               : Hysteresis::RefilledByCleanStep;
    state.overflows = static_cast<int32_t>(read.integer("_overflows", 0, kMost));
    counts.steps = read.integer("_steps", 0, kExact);
    counts.skips = read.integer("_skips", 0, kExact);
    counts.skips_in_row = read.integer("_skips_in_row", 0, kExact);
    counts.bad_losses = read.integer("_bad_losses", 0, kExact);
    counts.growths = read.integer("_growths", 0, kExact);
    counts.backoffs = read.integer("_backoffs", 0, kExact);
  }
  check_law(law);
  check_scale(scale, law);
  state.scale = static_cast<float>(scale);
  return scaler;
}

GradScaler::StateDict GradScaler::state_dict() const {
  if (!options_.enabled) return {};
  return to_dict({law_, state(), counts()});
}

void GradScaler::load_state_dict(const StateDict& saved) {
  if (!options_.enabled) return;
  const SavedScaler loaded = from_dict(saved, law_);
  law_ = loaded.law;
  initial_ = loaded.state;
  initial_counts_ = loaded.counts;
  until_look_ = options_.throw_after_skips - loaded.counts.skips_in_row;
  if (initialised()) fill_state(initial_, initial_counts_);
  end_epoch();
}

}  // namespace halftape::amp
