// List-wise updates: check-and-unscale, SGD, Adam, and the scaler's own transition.
#include <array>
#include <bit>
#include <cmath>
#include <sstream>

#include "halftape/core/warn.h"
#include "halftape/cpu/kernels.h"
#include "halftape/cpu/loop.h"

namespace halftape::cpu {
namespace {

/// One element of an array of ours. Not backend().read(): this is the device deciding, nobody waits
/// for it.
double value(const Array& one) {
  return visit(one.dtype(), [&](auto t) {
    return convert<double>(*static_cast<typename decltype(t)::type*>(one.raw()));
  });
}

template <size_t N>
std::array<int64_t, N> numbers(const Array& a) {
  std::array<int64_t, N> n;
  for (int64_t i = 0; auto& x : n) x = static_cast<int64_t>(value(a.slice(0, i, i + 1))), ++i;
  return n;
}
template <size_t N>
void set_numbers(const Array& a, const std::array<int64_t, N>& n) {
  for (int64_t i = 0; const auto x : n) fill(a.slice(0, i, i + 1), x), ++i;
  a.bump_version();
}

bool says_skip(const StepControl& control) {
  return control.found_inf.defined() && value(control.found_inf) != 0;
}
double gradient_factor(const StepControl& control) {
  return control.inv_scale.defined() ? value(control.inv_scale) : 1;
}

/// Walks arrays of one shape element by element as S: f(lanes) changes lanes[0 … Written) in place.
template <class S, size_t Written, size_t N, class F>
void update_lanes(const std::array<const Array*, N>& arrays, const F& f) {
  std::array<Load<S>, N> loads;
  std::array<Store<S>, N> stores;
  for (size_t a = 0; a < N; ++a)
    loads[a] = loader<S>(arrays[a]->dtype()), stores[a] = storer<S>(arrays[a]->dtype());
  const Walk<N> walk(arrays);
  walk.run([&](std::array<char*, N> at, const std::array<int64_t, N>& steps, int64_t length) {
    alignas(64) S lanes[N][kLanes];
    for (int64_t i = 0; i < length; i += kLanes) {
      const int n = static_cast<int>(std::min<int64_t>(kLanes, length - i));
      for (size_t a = 0; a < N; ++a) loads[a](at[a], steps[a], n, lanes[a]);
      f(lanes, n);
      for (size_t a = 0; a < Written; ++a) stores[a](lanes[a], n, at[a], steps[a]);
      for (size_t a = 0; a < N; ++a) at[a] += kLanes * steps[a] * walk.operands[a].item;
    }
  });
}

template <class F>
void in_precision(const Array& param, F&& f) {
  if (param.dtype() == kFloat64)
    f(Type<double>{});
  else
    f(Type<float>{});
}

/// x − x is 0 for finite x and NaN otherwise.
template <class S>
bool is_finite(S x) {
  return x - x == S(0);
}

void warn_of_skips(int64_t count, float scale, bool bad_loss) {
  std::ostringstream text;
  text << "GradScaler: " << count << " steps in a row were skipped, the scale is " << scale;
  if (bad_loss)
    text << "; the loss itself is infinite or NaN, which no scale cures";
  else
    text << "; scaler.stats().nonfinite names the first gradient that is not finite";
  warn(text.str());
}

bool finite(const Array& x) {
  std::atomic<bool> found{false};
  in_precision(x, [&](auto t) {
    using S = typename decltype(t)::type;
    update_lanes<S, 0, 1>({&x}, [&](S(*lanes)[kLanes], int n) {
      int bad = 0;
      for (int k = 0; k < n; ++k) bad |= !is_finite(lanes[0][k]);
      if (bad) found.store(true, std::memory_order_relaxed);
    });
  });
  return !found;
}

/// g ← g·inverse; were all elements finite before and after?
bool unscale(const Array& g, double inverse) {
  std::atomic<bool> found{false};
  in_precision(g, [&](auto t) {
    using S = typename decltype(t)::type;
    const S inv = static_cast<S>(inverse);
    const bool narrow = is_16bit(g.dtype());
    update_lanes<S, 1, 1>({&g}, [&](S(*lanes)[kLanes], int n) {
      int bad = 0;
      for (int k = 0; k < n; ++k) {
        const S before = lanes[0][k], after = inv == S(1) ? before : before * inv;
        lanes[0][k] = after;
        bad |= int{!is_finite(before)} | int{!is_finite(after)};
      }
      if (narrow && !bad)  // rounding to 16 bits may overflow once more
        for (int k = 0; k < n; ++k) {
          const float r = g.dtype() == kFloat16
                              ? static_cast<float>(Half(static_cast<float>(lanes[0][k])))
                              : static_cast<float>(BFloat16(static_cast<float>(lanes[0][k])));
          bad |= !is_finite(r);
        }
      if (bad) found.store(true, std::memory_order_relaxed);
    });
  });
  return !found;
}

}  // namespace

void check_finite(std::span<const Array> xs, const Array& found_inf) {
  bool all = true;
  for (const Array& x : xs)
    if (x.defined()) all &= finite(x);
  if (!all) fill(found_inf, 1);
}

void unscale(std::span<const Array> grads, const Array& inv_scale, const Array& found_inf,
             const Array& first) {
  const double inverse = value(inv_scale);
  int64_t first_bad = -1;
  // All of them, also after a bad one: a caller who looks sees one state, not two.
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i].defined()) continue;
    if (!unscale(grads[i], inverse) && first_bad < 0) first_bad = static_cast<int64_t>(i);
    grads[i].bump_version();
  }
  if (first_bad < 0) return;
  fill(found_inf, 1);
  if (first.defined()) fill(first, first_bad);
}

void sgd(std::span<const SgdSlot> slots, const SgdScalars& o, const StepControl& control) {
  if (says_skip(control)) return;
  const double factor = gradient_factor(control);
  for (const SgdSlot& slot : slots) {
    in_precision(slot.param, [&](auto t) {
      using S = typename decltype(t)::type;
      const S inv = static_cast<S>(factor);
      auto body = [&](bool first) {
        return [&, first](S(*lanes)[kLanes], int) {
          for (int k = 0; k < kLanes; ++k)
            sgd<S>(lanes[0][k], lanes[2][k] * inv, lanes[1][k], o, first);
        };
      };
      if (slot.momentum.defined()) {
        const bool first = value(slot.step) == 0;
        update_lanes<S, 2, 3>({&slot.param, &slot.momentum, &slot.grad}, body(first));
        slot.momentum.bump_version();
      } else {
        update_lanes<S, 1, 3>({&slot.param, &slot.param, &slot.grad}, body(false));
      }
    });
    slot.param.bump_version();
    if (slot.step.defined()) fill(slot.step, value(slot.step) + 1);
  }
}

void adam(std::span<const AdamSlot> slots, const AdamScalars& o, const StepControl& control) {
  if (says_skip(control)) return;
  const double factor = gradient_factor(control);
  for (const AdamSlot& slot : slots) {
    const double step = value(slot.step) + 1;
    const AdamStep s = adam_step(o, step);
    in_precision(slot.param, [&](auto t) {
      using S = typename decltype(t)::type;
      const S inv = static_cast<S>(factor);
      const Array& largest = o.amsgrad ? slot.max_exp_avg_sq : slot.exp_avg_sq;
      auto body = [&](S(*lanes)[kLanes], int) {
        for (int k = 0; k < kLanes; ++k)
          adam<S>(lanes[0][k], lanes[4][k] * inv, lanes[1][k], lanes[2][k], lanes[3][k], o, s);
      };
      if (o.amsgrad)
        update_lanes<S, 4, 5>({&slot.param, &slot.exp_avg, &slot.exp_avg_sq, &largest, &slot.grad},
                              body);
      else
        update_lanes<S, 3, 5>({&slot.param, &slot.exp_avg, &slot.exp_avg_sq, &largest, &slot.grad},
                              body);
    });
    for (const Array* a : {&slot.param, &slot.exp_avg, &slot.exp_avg_sq, &slot.max_exp_avg_sq})
      if (a->defined()) a->bump_version();
    fill(slot.step, step);
    slot.step.bump_version();
  }
}

void scaler_update(const ScalerUpdate& u, const ScalerLaw& law) {
  const bool bad_loss = u.bad_loss.defined() && value(u.bad_loss) != 0;
  const ScalerFinding* overflow = nullptr;
  for (const ScalerFinding& f : u.findings)
    if (!overflow && value(f.found_inf) != 0) overflow = &f;
  const Verdict verdict = bad_loss   ? Verdict::BadLoss
                          : overflow ? Verdict::Overflow
                                     : Verdict::Finite;
  const float before = static_cast<float>(value(u.scale));
  const auto trackers = numbers<2>(u.trackers);
  const ScalerState after = next(
      ScalerState{before, static_cast<int32_t>(trackers[0]), static_cast<int32_t>(trackers[1])},
      verdict, law);
  fill(u.scale, after.scale);
  u.scale.bump_version();
  set_numbers<2>(u.trackers, {after.growth_tracker, after.overflows});
  if (!u.counts.defined()) return;
  auto counts = std::bit_cast<ScalerCounts>(numbers<8>(u.counts));
  counts = counted(counts, verdict, before, after.scale);
  if (overflow) {
    counts.optimizer = overflow->optimizer;
    counts.parameter = static_cast<int64_t>(value(overflow->first));
  }
  set_numbers<8>(u.counts, std::bit_cast<std::array<int64_t, 8>>(counts));
  if (verdict != Verdict::Finite && counts.skips_in_row == u.warn_after)
    warn_of_skips(counts.skips_in_row, after.scale, bad_loss);
}

}  // namespace halftape::cpu
