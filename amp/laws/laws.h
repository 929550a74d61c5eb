// The laws of dynamic loss scaling, as eight systems write them, and one way to run any of them:
// how a scale moves when a step overflowed, and when it did not. Pure functions of a small state.
#pragma once
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

namespace halftape::amp::laws {

/// The numbers of a law. Scales lie in [min_scale, max_scale]; a max_scale of infinity means that
/// the system has no cap and that its scale becomes infinite once it leaves its number format.
struct Constants {
  double init_scale = 65536, growth_factor = 2, backoff_factor = 0.5;
  int64_t growth_interval = 2000;  // good steps before the scale grows, give or take a quirk
  double min_scale = 0;
  double max_scale = std::numeric_limits<float>::max();
  int64_t hysteresis = 1;  // the how-manieth overflow makes the scale fall
};

/// All that a law remembers from one step to the next.
struct State {
  double scale = 0;      // multiplies the next loss
  double decided = 0;    // the newest scale; the late laws use it a step after they decided it
  int64_t good = 0;      // steps without an overflow, as the law counts them
  int64_t patience = 0;  // hysteresis left: the scale falls on an overflow that finds 1 or less
};

/// What a step showed. Only the law `headroom` looks at the limit.
struct Observed {
  bool overflow = false;
  double limit = std::numeric_limits<double>::infinity();  // the largest scale that would pass
};

struct Law {
  std::string_view name, title;
  std::string_view source;  // file and function that it was read from, or what it is
  std::string_view quirk;   // where it does otherwise than one would think; may be empty
  Constants constants;      // the system's defaults; copy a law to change them
  State (*next)(State, const Observed&, const Constants&);

  State start() const {
    return {constants.init_scale, constants.init_scale, 0, constants.hysteresis};
  }
};

/// pytorch, apex, apex_kernel, deepspeed, deepspeed_consecutive, megatron, flax, jmp, keras,
/// roundpipe; and two that no system has: roundpipe_epochs and headroom.
std::span<const Law> all();
/// Throws for a name that is not in all(), listing those that are.
const Law& find(std::string_view name);

/// What a law did, step by step.
struct Replay {
  std::vector<double> scale;   // that multiplied the loss of step i
  std::vector<bool> overflow;  // of step i: it was skipped
  State end;
};
/// Runs a law on given verdicts, whatever its scale.
Replay replay(const Law& law, const std::vector<bool>& overflow);
/// Runs a law where step i overflows when its scale exceeds limits[i]. A limit of 0 lets no scale
/// pass, one of infinity every finite one. Throws on a negative limit or NaN.
Replay replay_limits(const Law& law, std::span<const double> limits);

struct Summary {
  int64_t steps = 0, skips = 0;
  double mean_log2_scale = 0;
  /// Share of the steps at a scale that passes and whose double would not.
  double best_share = 0;
};
/// Over the steps from `first` on. `limits` as they were given to replay_limits().
Summary summarise(const Replay& replay, std::span<const double> limits, size_t first = 0);

}  // namespace halftape::amp::laws
