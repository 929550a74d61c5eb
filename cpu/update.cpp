// List-wise updates: check-and-unscale, SGD, Adam, and the scaler's own transition.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "halftape/core/formula/philox.h"
#include "halftape/core/skips.h"
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

/// Are all elements finite, also times `factor`?
bool finite(const Array& x, double factor) {
  std::atomic<bool> found{false};
  in_precision(x, [&](auto t) {
    using S = typename decltype(t)::type;
    const S by = static_cast<S>(factor);
    update_lanes<S, 0, 1>({&x}, [&](S(*lanes)[kLanes], int n) {
      int bad = 0;
      for (int k = 0; k < n; ++k)
        bad |= int{!is_finite(lanes[0][k])} | int{!is_finite(lanes[0][k] * by)};
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

/// A parameter's lanes in an update: its own first, then its extra where it has one.
template <Weights Kind, class T, class S>
struct Weight {
  using Compute = S;
  static constexpr size_t kNext = Kind == Weights::Plain ? 1 : 2;  // the first lane after them

  static S load(const S (*lanes)[kLanes], int k) {
    return join_weight<Kind, S>(lanes[0][k], lanes[kNext - 1][k]);
  }
  static void store(S (*lanes)[kLanes], int k, S w) {
    S unused = 0;
    split_weight<Kind, T, S>(w, lanes[0][k], Kind == Weights::Plain ? unused : lanes[1][k]);
  }
  template <class... Rest>
  static auto arrays(const Array& param, const Array& extra, const Rest&... rest) {
    if constexpr (Kind == Weights::Plain)
      return std::array<const Array*, sizeof...(Rest) + 1>{&param, &rest...};
    else
      return std::array<const Array*, sizeof...(Rest) + 2>{&param, &extra, &rest...};
  }
};

/// Numbers of one update of one parameter, uniform in [0, 1). Element i depends on the key, the
/// count and i alone.
Array uniform(const Array& param, const Array& key_and_count) {
  const auto* state = key_and_count.data<int64_t>();
  const auto key = static_cast<uint64_t>(state[0]), count = static_cast<uint64_t>(state[1]);
  Array u(param.shape(), kFloat32, param.device());
  float* out = u.data<float>();
  const int64_t n = u.numel();
  parallel_ranges((n + 3) / 4, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const PhiloxBlock words = philox(key, static_cast<uint64_t>(block), count);
      for (int64_t j = 0; j < 4 && 4 * block + j < n; ++j)
        out[4 * block + j] = uniform01(words.v[j]);
    }
  });
  return u;
}

template <Weights Kind, class F>
void update_16bit(const Array& param, const Array& extra, const F& f) {
  if (param.dtype() == kFloat16)
    f(Weight<Kind, Half, float>{}, extra);
  else
    f(Weight<Kind, BFloat16, float>{}, extra);
}

/// f(Weight<…>{}, extra) for the way in which a parameter is kept.
template <class F>
void update_weight(const Array& param, const Keeping& keeping, const F& f) {
  const Array& extra = keeping.extra;
  switch (keeping.weights) {
    case Weights::Plain:
      in_precision(param, [&](auto t) {
        using S = typename decltype(t)::type;
        f(Weight<Weights::Plain, S, S>{}, extra);
      });
      break;
    case Weights::Master:
      update_16bit<Weights::Master>(param, extra, f);
      break;
    case Weights::Stochastic:
      update_16bit<Weights::Stochastic>(param, uniform(param, extra), f);
      ++extra.data<int64_t>()[1];
      break;
    case Weights::Kahan:
      update_16bit<Weights::Kahan>(param, extra, f);
      break;
  }
  param.bump_version();
  if (extra.defined()) extra.bump_version();
}

}  // namespace

void check_finite(std::span<const Array> xs, const Array& found_inf, const Array& inv_scale,
                  const Array& first) {
  const double factor = inv_scale.defined() ? value(inv_scale) : 1;
  const auto bad = std::find_if(xs.begin(), xs.end(),
                                [&](const Array& x) { return x.defined() && !finite(x, factor); });
  if (bad == xs.end()) return;
  fill(found_inf, 1);
  if (first.defined()) fill(first, bad - xs.begin());
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
    const bool first = slot.step.defined() && value(slot.step) == 0;
    const Array& momentum = slot.momentum.defined() ? slot.momentum : slot.param;  // or read only
    update_weight(slot.param, slot.keeping, [&](auto weight, const Array& extra) {
      using W = decltype(weight);
      using S = typename W::Compute;
      const S inv = static_cast<S>(factor);
      const auto body = [&](S(*lanes)[kLanes], int) {
        for (int k = 0; k < kLanes; ++k) {
          S w = W::load(lanes, k);
          sgd<S>(w, lanes[W::kNext + 1][k] * inv, lanes[W::kNext][k], o, first);
          W::store(lanes, k, w);
        }
      };
      const auto arrays = W::arrays(slot.param, extra, momentum, slot.grad);
      if (slot.momentum.defined())
        update_lanes<S, W::kNext + 1>(arrays, body);
      else
        update_lanes<S, W::kNext>(arrays, body);
    });
    if (slot.momentum.defined()) slot.momentum.bump_version();
    if (slot.step.defined()) fill(slot.step, value(slot.step) + 1);
  }
}

void adam(std::span<const AdamSlot> slots, const AdamScalars& o, const StepControl& control) {
  if (says_skip(control)) return;
  const double factor = gradient_factor(control);
  for (const AdamSlot& slot : slots) {
    const double step = value(slot.step) + 1;
    const AdamStep s = adam_step(o, step);
    const Array& largest = o.amsgrad ? slot.max_exp_avg_sq : slot.exp_avg_sq;  // or read only
    update_weight(slot.param, slot.keeping, [&](auto weight, const Array& extra) {
      using W = decltype(weight);
      using S = typename W::Compute;
      constexpr size_t at = W::kNext;
      const S inv = static_cast<S>(factor);
      const auto body = [&](S(*lanes)[kLanes], int) {
        for (int k = 0; k < kLanes; ++k) {
          S w = W::load(lanes, k);
          adam<S>(w, lanes[at + 3][k] * inv, lanes[at][k], lanes[at + 1][k], lanes[at + 2][k], o,
                  s);
          W::store(lanes, k, w);
        }
      };
      const auto arrays =
          W::arrays(slot.param, extra, slot.exp_avg, slot.exp_avg_sq, largest, slot.grad);
      if (o.amsgrad)
        update_lanes<S, at + 3>(arrays, body);
      else
        update_lanes<S, at + 2>(arrays, body);
    });
    for (const Array* a : {&slot.exp_avg, &slot.exp_avg_sq, &slot.max_exp_avg_sq})
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
    warn(tell_skips("GradScaler", counts.skips_in_row, after.scale, bad_loss));
}

}  // namespace halftape::cpu
