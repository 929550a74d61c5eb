#include "halftape/amp/laws/laws.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "halftape/core/check.h"
#include "halftape/core/formula/scale.h"

namespace halftape::amp::laws {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kFloatTiny = std::numeric_limits<float>::min();

/// Rounds a scale that is kept in float32. Apex and DeepSpeed keep a Python number, a double.
double in_float(double scale) { return static_cast<float>(scale); }

/// `s` with a new scale that multiplies the next loss.
State with_scale(State s, double scale) {
  s.scale = s.decided = scale;
  return s;
}

/// Backs off in float32.
State backed_off(State s, const Constants& c) {
  return with_scale(s, std::max(c.min_scale, in_float(s.scale * c.backoff_factor)));
}

State pytorch(State s, const Observed& o, const Constants& c) {
  const ScaleLaw law{.growth_factor = c.growth_factor,
                     .backoff_factor = c.backoff_factor,
                     .growth_interval = c.growth_interval,
                     .min_scale = c.min_scale,
                     .max_scale = c.max_scale};
  const ScaleState before{.scale = static_cast<float>(s.decided),
                          .growth_tracker = static_cast<int32_t>(s.good)};
  const ScaleState after = halftape::next(before, o.overflow, law);
  s.good = after.growth_tracker;
  return with_scale(s, after.scale);
}

State apex(State s, const Observed& o, const Constants& c) {
  s.good = o.overflow ? 0 : s.good + 1;
  if (o.overflow) s = with_scale(s, std::max(c.min_scale, s.scale * c.backoff_factor));
  if (s.good == c.growth_interval) {
    s.good = 0;
    s = with_scale(s, std::min(c.max_scale, s.scale * c.growth_factor));
  }
  return s;
}

State apex_kernel(State s, const Observed& o, const Constants& c) {
  if (o.overflow) {
    s.good = 0;
    if (--s.patience > 0) return s;
    return with_scale(s, in_float(s.scale * c.backoff_factor));
  }
  s.patience = c.hysteresis;
  if (++s.good < c.growth_interval) return s;
  s.good = 0;
  const double grown = in_float(s.scale * c.growth_factor);
  return std::isfinite(grown) ? with_scale(s, grown) : s;
}

template <bool refilled_by_good_step>
State deepspeed(State s, const Observed& o, const Constants& c) {
  if (o.overflow) {
    s.good = 0;
    if (s.patience > 1) {
      --s.patience;
      return s;
    }
    return with_scale(s, std::max(c.min_scale, s.scale * c.backoff_factor));
  }
  if constexpr (refilled_by_good_step) s.patience = c.hysteresis;
  // The first good step after an overflow is not counted; the count goes on through a growth.
  const int64_t stable = s.good++;
  if (stable == 0 || stable % c.growth_interval != 0) return s;
  s.patience = c.hysteresis;
  return with_scale(s, s.scale * c.growth_factor);
}

State megatron(State s, const Observed& o, const Constants& c) {
  if (o.overflow) {
    s.good = 0;
    if (--s.patience > 0) return s;
    return backed_off(s, c);
  }
  if (++s.good != c.growth_interval) return s;
  s.good = 0;
  s.patience = c.hysteresis;
  return with_scale(s, in_float(s.scale * c.growth_factor));
}

State flax(State s, const Observed& o, const Constants& c) {
  const bool grow = s.good == c.growth_interval;  // before this step is counted
  s.good = grow || o.overflow ? 0 : s.good + 1;
  if (o.overflow) return backed_off(s, c);
  return grow ? with_scale(s, std::min(c.max_scale, in_float(s.scale * c.growth_factor))) : s;
}

State jmp(State s, const Observed& o, const Constants& c) {
  const bool grow = s.good == c.growth_interval - 1;
  s.good = o.overflow ? 0 : (s.good + 1) % c.growth_interval;
  if (o.overflow) return backed_off(s, c);
  const double grown = in_float(s.scale * c.growth_factor);
  return grow && std::isfinite(grown) ? with_scale(s, grown) : s;
}

State keras(State s, const Observed& o, const Constants& c) {
  if (o.overflow) {
    s.good = 0;
    return with_scale(s, in_float(s.scale * c.backoff_factor));
  }
  if (++s.good != c.growth_interval) return s;
  s.good = 0;
  return with_scale(s, in_float(s.scale * c.growth_factor));
}

/// The outcome of step k moves the newest scale; step k + 1 still uses the one before it.
State roundpipe(State s, const Observed& o, const Constants& c) {
  State after = pytorch(s, o, c);
  after.scale = s.decided;
  return after;
}

State roundpipe_epochs(State s, const Observed& o, const Constants& c) {
  if (s.scale == s.decided) return roundpipe(s, o, c);
  return with_scale(s, s.decided);
}

State headroom(State s, const Observed& o, const Constants& c) {
  const bool fits = s.decided * c.growth_factor <= o.limit;
  if (!o.overflow && !fits && s.good + 1 >= c.growth_interval)
    return s;  // growth is due, and waits
  return pytorch(s, o, c);
}

constexpr Law kLaws[] = {
    {.name = "pytorch",
     .title = "PyTorch",
     .source = "torch/amp/grad_scaler.py, aten/src/ATen/native/cuda/AmpKernels.cu",
     .quirk = "growth that would leave float32 is not taken; no floor: the scale may reach 0 and "
              "stays there",
     .next = pytorch},
    {.name = "apex",
     .title = "Apex",
     .source = "apex/amp/scaler.py, LossScaler.update_scale (apex.amp until May 2025)",
     .quirk = "capped at 2^24",
     .constants = {.max_scale = 0x1p24},
     .next = apex},
    {.name = "apex_kernel",
     .title = "Apex, hysteresis kernel",
     .source = "csrc/update_scale_hysteresis.cu; its constants are arguments: PyTorch's, "
               "hysteresis 2",
     .quirk = "the scale never backs off when overflows alternate with good steps",
     .constants = {.hysteresis = 2},
     .next = apex_kernel},
    {.name = "deepspeed",
     .title = "DeepSpeed",
     .source = "deepspeed/runtime/fp16/loss_scaler.py, DynamicLossScaler.update_scale",
     .quirk =
         "first growth after interval + 1 good steps, then every interval; all overflows since "
         "the last growth count; at the floor the system itself ends the run",
     .constants = {.growth_interval = 1000, .min_scale = 1, .max_scale = kInf, .hysteresis = 2},
     .next = deepspeed<false>},
    {.name = "deepspeed_consecutive",
     .title = "DeepSpeed, consecutive",
     .source = "the same with consecutive_hysteresis = true",
     .quirk = "the scale never backs off when overflows alternate with good steps; growth as "
              "deepspeed",
     .constants = {.growth_interval = 1000, .min_scale = 1, .max_scale = kInf, .hysteresis = 2},
     .next = deepspeed<true>},
    {.name = "megatron",
     .title = "Megatron-LM",
     .source = "megatron/core/optimizer/grad_scaler.py, DynamicGradScaler.update",
     .quirk = "documented as overflows in a row; counts all of them since the last growth",
     .constants = {.init_scale = 0x1p32,
                   .growth_interval = 1000,
                   .min_scale = 1,
                   .max_scale = kInf,
                   .hysteresis = 2},
     .next = megatron},
    {.name = "flax",
     .title = "Flax",
     .source = "flax/training/dynamic_scale.py, DynamicScale.value_and_grad",
     .quirk = "grows after interval + 1 good steps; the largest scale is float32's largest number, "
              "no power of two",
     .constants = {.min_scale = kFloatTiny},
     .next = flax},
    {.name = "jmp",
     .title = "jmp",
     .source = "jmp/_src/loss_scale.py, DynamicLossScale.adjust; initial scale of its example",
     .quirk = "",
     .constants = {.init_scale = 0x1p15, .min_scale = 1},
     .next = jmp},
    {.name = "keras",
     .title = "Keras",
     .source = "keras/src/optimizers/loss_scale_optimizer.py",
     .quirk = "neither floor nor cap: zero gradients let the scale grow to infinity",
     .constants = {.init_scale = 0x1p15, .max_scale = kInf},
     .next = keras},
    {.name = "roundpipe",
     .title = "RoundPipe",
     .source = "roundpipe/grad_scaler.py, GradScaler.update_kernel with an asynchronous optimizer",
     .quirk = "one step late: a scale too large costs two skips and two halvings",
     .next = roundpipe},
    {.name = "roundpipe_epochs",
     .title = "late, own epoch only",
     .source = "of our own: RoundPipe's delay, but the outcome of a step under an older scale does "
               "not move the newest",
     .quirk = "two skips, one halving",
     .next = roundpipe_epochs},
    {.name = "headroom",
     .title = "headroom",
     .source = "of our own: PyTorch's law, but growth waits until the last step would have passed "
               "at the grown scale",
     .quirk = "needs the limit of the step, known from the largest magnitude in backward",
     .next = headroom},
};

}  // namespace

std::span<const Law> all() { return kLaws; }

const Law& find(std::string_view name) {
  std::string names;
  for (const Law& law : kLaws) {
    if (law.name == name) return law;
    names += (names.empty() ? "" : ", ") + std::string(law.name);
  }
  HALFTAPE_CHECK(false, "laws::find: there is no law \"", name, "\"; there are ", names);
  return kLaws[0];
}

namespace {
/// The run of a law over n steps, of which outcome(i, scale) tells what was observed.
template <class Outcome>
Replay run(const Law& law, size_t n, const Outcome& outcome) {
  HALFTAPE_CHECK(law.constants.growth_interval > 0, "laws::replay: growth_interval ",
                 law.constants.growth_interval, " of ", law.name, " must be at least 1");
  Replay r;
  r.end = law.start();
  for (size_t i = 0; i < n; ++i) {
    const Observed seen = outcome(i, r.end.scale);
    r.scale.push_back(r.end.scale);
    r.overflow.push_back(seen.overflow);
    r.end = law.next(r.end, seen, law.constants);
  }
  return r;
}
}  // namespace

Replay replay(const Law& law, const std::vector<bool>& overflow) {
  return run(law, overflow.size(),
             [&](size_t i, double) { return Observed{.overflow = overflow[i]}; });
}

Replay replay_limits(const Law& law, std::span<const double> limits) {
  return run(law, limits.size(), [&](size_t i, double scale) {
    HALFTAPE_CHECK(limits[i] >= 0, "laws::replay_limits: limit ", limits[i], " of step ", i,
                   " is not 0 or more");
    return Observed{.overflow = scale > limits[i] || !std::isfinite(scale), .limit = limits[i]};
  });
}

Summary summarise(const Replay& replay, std::span<const double> limits, size_t first) {
  HALFTAPE_CHECK(limits.size() == replay.scale.size() && first < limits.size(),
                 "laws::summarise: ", limits.size(), " limits and ", replay.scale.size(),
                 " steps, from step ", first, "; give those of replay_limits(), and one step");
  Summary sum;
  double best = 0;
  for (size_t i = first; i < limits.size(); ++i) {
    const double scale = replay.scale[i];
    ++sum.steps;
    sum.skips += replay.overflow[i];
    sum.mean_log2_scale += std::log2(scale);
    best += scale <= limits[i] && 2 * scale > limits[i];
  }
  sum.mean_log2_scale /= static_cast<double>(sum.steps);
  sum.best_share = best / static_cast<double>(sum.steps);
  return sum;
}

}  // namespace halftape::amp::laws
