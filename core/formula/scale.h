// How a scale moves, as a pure function: the same lines run on the host, in a kernel, and in a
// test's table.
#pragma once
#include <cstdint>
#include <limits>

#include "halftape/core/formula/ops.h"

namespace halftape {

/// What gives back the overflows that a law with `hysteresis` lets pass. Two different laws go by
/// that one name: with hysteresis 2 and an overflow on every second step, the first never backs
/// off, the second does on every overflow but the first.
enum class Hysteresis : uint8_t {
  RefilledByCleanStep,  // only overflows in a row count: Apex, DeepSpeed's consecutive_hysteresis
  RefilledByGrowth,     // all since the scale last grew do: Megatron, DeepSpeed's default
};

/// The constants of the law. Defaults are PyTorch's; the bounds and hysteresis are off.
struct ScaleLaw {
  double growth_factor = 2, backoff_factor = 0.5;
  int64_t growth_interval = 2000;
  double min_scale = 0, max_scale = std::numeric_limits<float>::max();
  int64_t hysteresis = 1;  // which overflow makes the scale fall: 1 the first, 2 the second …
  Hysteresis refill = Hysteresis::RefilledByCleanStep;
};

struct ScaleState {
  float scale = 65536;
  int32_t growth_tracker = 0;  // good steps since the scale last changed
  int32_t overflows = 0;       // since the last refill; at most the law's hysteresis
};

/// The state after one step: back off on an overflow, unless hysteresis lets it pass; grow after
/// `growth_interval` good steps in a row.
/// `>=`, not `==`: an interval lowered below the tracker must still lead to growth. The scale never
/// becomes infinite or NaN.
HALFTAPE_HD ScaleState next(ScaleState s, bool found_inf, const ScaleLaw& law) {
  auto bounded = [&](double scale) {
    const double up = scale < law.max_scale ? scale : law.max_scale;
    return static_cast<float>(up > law.min_scale ? up : law.min_scale);
  };
  if (found_inf) {
    if (s.overflows < law.hysteresis) ++s.overflows;
    if (s.overflows < law.hysteresis) return {s.scale, 0, s.overflows};
    return {bounded(s.scale * law.backoff_factor), 0, s.overflows};
  }
  if (law.refill == Hysteresis::RefilledByCleanStep) s.overflows = 0;
  if (++s.growth_tracker < law.growth_interval) return s;
  const double grown = s.scale * law.growth_factor;
  // Growth that would leave float's range is not taken at all, as in PyTorch.
  if (!(static_cast<float>(grown) <= std::numeric_limits<float>::max())) return {s.scale, 0, 0};
  return {bounded(grown), 0, 0};
}

/// What the steps of one update() found. A loss that is itself infinite or NaN says nothing about
/// the scale, and no scale can cure it: the step is skipped and the state stays.
enum class Verdict : uint8_t { Finite, Overflow, BadLoss };

HALFTAPE_HD ScaleState next(ScaleState s, Verdict verdict, const ScaleLaw& law) {
  return verdict == Verdict::BadLoss ? s : next(s, verdict == Verdict::Overflow, law);
}

/// What is kept beside the state, for people: no decision depends on it. int64 throughout, in this
/// order on a device.
struct ScaleCounts {
  int64_t steps = 0;         // updates that judged a step
  int64_t skips = 0;         // of them, those that found something not finite
  int64_t skips_in_row = 0;  // up to the last step
  int64_t bad_losses = 0;    // of the skips, those for the loss
  int64_t growths = 0, backoffs = 0;
  int64_t list = -1, position = -1;  // where the last skip found the first bad gradient
};

HALFTAPE_HD ScaleCounts counted(ScaleCounts c, Verdict verdict, float before, float after) {
  ++c.steps;
  c.skips += verdict != Verdict::Finite;
  c.skips_in_row = verdict == Verdict::Finite ? 0 : c.skips_in_row + 1;
  c.bad_losses += verdict == Verdict::BadLoss;
  c.growths += after > before;
  c.backoffs += after < before;
  return c;
}

/// Told on the host of steps that were skipped in a row, up to the last one: how many, the scale
/// after them, and whether the last verdict was BadLoss.
using SkipReport = void (*)(int64_t in_row, float scale, bool bad_loss);

}  // namespace halftape
