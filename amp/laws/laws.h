// The laws of dynamic loss scaling in eight systems, as pure functions of a small state, and a
// replay of any of them: how the scale moves after a step that overflowed, and after one that did
// not.
#pragma once
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

namespace halftape::amp::laws {

/// The constants of a law. Scales lie in [min_scale, max_scale]. A max_scale of infinity means that
/// the system has no cap: its scale becomes infinite when it overflows its number format.
struct Constants {
  /// The first scale, and by what it is multiplied when it grows and when it backs off.
  double init_scale = 65536, growth_factor = 2, backoff_factor = 0.5;
  int64_t growth_interval = 2000;  // good steps before the scale grows, but see Law::quirk
  double min_scale = 0;
  double max_scale = std::numeric_limits<float>::max();
  int64_t hysteresis = 1;  // the scale backs off on the n-th overflow
};

/// The memory of a law between steps.
struct State {
  double scale = 0;      // multiplies the next loss
  double decided = 0;    // the newest scale; the late laws use it one step later
  int64_t good = 0;      // steps without an overflow, as the law counts them
  int64_t patience = 0;  // the scale backs off on an overflow when this is 1 or less
};

/// The outcome of a step. Only the law `headroom` reads the limit.
struct Observed {
  bool overflow = false;                                   // a gradient was infinite or NaN
  double limit = std::numeric_limits<double>::infinity();  // the largest scale without overflow
};

/// One system's rule for its scale.
struct Law {
  std::string_view name, title;  // for find(); for people
  std::string_view source;       // the file and function that define it
  std::string_view quirk;        // surprising behaviour; may be empty
  Constants constants = {};      // the system's defaults; copy a law to change them
  State (*next)(State, const Observed&, const Constants&);  // the state after a step

  State start() const {
    return {constants.init_scale, constants.init_scale, 0, constants.hysteresis};
  }
};

/// pytorch, apex, apex_kernel, deepspeed, deepspeed_consecutive, megatron, flax, jmp, keras,
/// roundpipe; and two of our own: roundpipe_epochs and headroom.
std::span<const Law> all();
/// Throws for an unknown name, listing the names in all().
const Law& find(std::string_view name);

/// The run of a law, step by step.
struct Replay {
  std::vector<double> scale;   // multiplied the loss of step i
  std::vector<bool> overflow;  // step i was skipped
  State end;                   // after the last step
};
/// Runs a law on given outcomes, which do not depend on its scale.
Replay replay(const Law& law, const std::vector<bool>& overflow);
/// Runs a law on steps that overflow when the scale exceeds limits[i]. With a limit of 0 every
/// scale overflows, with one of infinity no finite one. Throws on a negative limit or NaN.
Replay replay_limits(const Law& law, std::span<const double> limits);

/// A run in four numbers.
struct Summary {
  int64_t steps = 0, skips = 0;  // taken or not; not taken
  double mean_log2_scale = 0;    // over the steps
  /// The share of steps that did not overflow, but would at twice the scale.
  double best_share = 0;
};
/// Summarises the steps from `first` on. `limits` are those of replay_limits().
Summary summarise(const Replay& replay, std::span<const double> limits, size_t first = 0);

}  // namespace halftape::amp::laws
