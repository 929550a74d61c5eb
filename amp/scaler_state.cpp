#include "halftape/amp/scaler_state.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "halftape/amp/scaler_base.h"
#include "halftape/core/check.h"

namespace halftape::amp {
namespace {

using Dict = std::map<std::string, double>;
constexpr double kMost = std::numeric_limits<int32_t>::max();
/// The largest integer below which a double holds all of them.
constexpr double kExact = 0x1p53;

struct Writer {
  Dict& saved;
  void real(const char* key, double x) const { saved[key] = x; }
  template <class Int>
  void whole(const char* key, Int x, double, double) const {
    saved[key] = static_cast<double>(x);
  }
};

/// The error names the number that is missing or out of range.
struct Reader {
  const Dict& saved;
  void real(const char* key, double& x) const {
    const auto found = saved.find(key);
    HALFTAPE_CHECK(found != saved.end(), "GradScaler::load_state_dict: \"", key, "\" is missing");
    x = found->second;
  }
  template <class Int>
  void whole(const char* key, Int& n, double low, double high) const {
    double x = 0;
    real(key, x);
    HALFTAPE_CHECK(x >= low && x <= high && x == std::floor(x), "GradScaler::load_state_dict: \"",
                   key, "\" is ", x, ", not a whole number from ", low, " to ", high);
    n = static_cast<Int>(x);
  }
};

template <class Fields>
void torch_fields(const Fields& f, SavedScaler& s, double& scale) {
  f.real("scale", scale);
  f.real("growth_factor", s.law.growth_factor);
  f.real("backoff_factor", s.law.backoff_factor);
  f.whole("growth_interval", s.law.growth_interval, 1, kMost);
  f.whole("_growth_tracker", s.state.growth_tracker, 0, kMost - 1);
}

/// What torch lacks.
template <class Fields>
void own_fields(const Fields& f, SavedScaler& s) {
  auto& [law, state, counts] = s;
  f.real("min_scale", law.min_scale);
  f.real("max_scale", law.max_scale);
  f.whole("hysteresis", law.hysteresis, 1, kMost);
  bool by_growth = law.refill == Hysteresis::RefilledByGrowth;
  f.whole("refilled_by_growth", by_growth, 0, 1);
  law.refill = by_growth ? Hysteresis::RefilledByGrowth : Hysteresis::RefilledByCleanStep;
  f.whole("_overflows", state.overflows, 0, kMost);
  f.whole("_steps", counts.steps, 0, kExact);
  f.whole("_skips", counts.skips, 0, kExact);
  f.whole("_skips_in_row", counts.skips_in_row, 0, kExact);
  f.whole("_bad_losses", counts.bad_losses, 0, kExact);
  f.whole("_growths", counts.growths, 0, kExact);
  f.whole("_backoffs", counts.backoffs, 0, kExact);
}

}  // namespace

Dict to_dict(SavedScaler scaler) {
  Dict saved;
  double scale = scaler.state.scale;
  torch_fields(Writer{saved}, scaler, scale);
  own_fields(Writer{saved}, scaler);
  return saved;
}

SavedScaler from_dict(const Dict& saved, const ScalerLaw& current) {
  HALFTAPE_CHECK(
      !saved.empty(),
      "GradScaler::load_state_dict: the saved state is empty; was it saved by a disabled scaler?");
  SavedScaler scaler{current, {}, {}};
  auto& law = scaler.law;
  double scale = 0;
  torch_fields(Reader{saved}, scaler, scale);
  // One of our own fields shows that torch did not save this: then all of them must be there.
  Dict own;
  own_fields(Writer{own}, scaler);
  if (std::any_of(own.begin(), own.end(), [&](auto& field) { return saved.contains(field.first); }))
    own_fields(Reader{saved}, scaler);
  law.min_scale = static_cast<float>(law.min_scale);
  law.max_scale = static_cast<float>(law.max_scale);
  check_law(law);
  check_scale(scale, law);
  scaler.state.scale = static_cast<float>(scale);
  return scaler;
}

}  // namespace halftape::amp
