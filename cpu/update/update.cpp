// List-wise updates: check-and-unscale, the optimizers' rules, and the scaler's own transition.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "halftape/core/contract/skips.h"
#include "halftape/core/formula/norm.h"
#include "halftape/core/formula/philox.h"
#include "halftape/core/machine/warn.h"
#include "halftape/cpu/copy.h"
#include "halftape/cpu/cpu_backend.h"
#include "halftape/cpu/vector/loop.h"

namespace halftape::cpu {
namespace {

/// One element of an array of ours. Not backend().read(): this is the device deciding, nobody waits
/// for it.
double value(const Array& one) {
  return visit(one.dtype(), [&](auto t) {
    return convert<double>(*static_cast<typename decltype(t)::type*>(one.raw()));
  });
}

void set(const Array& one, Scalar value) {
  visit(one.dtype(), [&](auto t) {
    using T = typename decltype(t)::type;
    *static_cast<T*>(one.raw()) = value.to<T>();
  });
}

/// Of an array of N integers.
template <size_t N>
std::array<int64_t, N> numbers(const Array& a) {
  std::array<int64_t, N> n;
  visit(a.dtype(), [&](auto t) {
    const auto* x = static_cast<const typename decltype(t)::type*>(a.raw());
    for (auto& each : n) each = convert<int64_t>(*x), x += a.strides()[0];
  });
  return n;
}
template <size_t N>
void set_numbers(const Array& a, const std::array<int64_t, N>& n) {
  visit(a.dtype(), [&](auto t) {
    using T = typename decltype(t)::type;
    T* x = static_cast<T*>(a.raw());
    for (const int64_t each : n) *x = Scalar(each).to<T>(), x += a.strides()[0];
  });
  a.bump_version();
}

bool says_skip(const StepControl& control) {
  return control.found_inf.defined() && value(control.found_inf) != 0;
}
double gradient_factor(const StepControl& control) {
  return control.inv_scale.defined() ? value(control.inv_scale) : 1;
}

/// What is done with arrays that are walked over together: bit a stands for array a.
struct Use {
  uint32_t read = 0, written = 0;
  bool reads(size_t a) const { return read >> a & 1; }
  bool writes(size_t a) const { return written >> a & 1; }
};

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

template <class T, class S>
float rounded(S x) {
  return static_cast<float>(T(static_cast<float>(x)));
}

/// Are v[k]·by all finite? Then v[k] are so themselves: what is infinite or NaN stays it, whatever
/// it is multiplied by. The products take their place where it `writes`.
template <bool writes, class S>
bool finite_times(S by, std::conditional_t<writes, S, const S>* v, int64_t n) {
  using Word = typename Mask<S>::Word;
  // Without their sign, the bits of floats are in their order, and those of NaN above infinity's.
  Word largest = 0;
  const auto look = [&](S x) {
    const Word size = std::bit_cast<Word>(x) & std::numeric_limits<Word>::max();
    largest = size > largest ? size : largest;
  };
  if (by == S(1)) {  // signalling NaNs stay what they are
    for (int64_t k = 0; k < n; ++k) look(v[k]);
  } else {
    for (int64_t k = 0; k < n; ++k) {
      const S x = v[k] * by;
      if constexpr (writes) v[k] = x;
      look(x);
    }
  }
  return largest < std::bit_cast<Word>(std::numeric_limits<S>::infinity());
}

/// Are all elements finite, also times `factor`?
bool finite(const Array& x, double factor) {
  std::atomic<bool> found{false};
  in_precision(x, [&](auto t) {
    using S = typename decltype(t)::type;
    each_block<S, 1>({&x}, Use{1, 0}, [&](const auto& lanes, int64_t, int64_t n) {
      if (!finite_times<false>(static_cast<S>(factor), lanes[0], n))
        found.store(true, std::memory_order_relaxed);
    });
  });
  return !found;
}

/// g ← g·inverse; were all elements finite before and after?
bool unscale(const Array& g, double inverse) {
  std::atomic<bool> found{false};
  in_precision(g, [&](auto t) {
    using S = typename decltype(t)::type;
    each_block<S, 1>({&g}, Use{1, 1}, [&](const auto& lanes, int64_t, int64_t n) {
      S* v = lanes[0];
      bool bad = !finite_times<true>(static_cast<S>(inverse), v, n);
      if (!bad && g.dtype() == kFloat16)  // rounding to 16 bits may overflow once more
        for (int64_t k = 0; k < n; ++k) bad |= !is_finite(rounded<Half>(v[k]));
      if (!bad && g.dtype() == kBFloat16)
        for (int64_t k = 0; k < n; ++k) bad |= !is_finite(rounded<BFloat16>(v[k]));
      if (bad) found.store(true, std::memory_order_relaxed);
    });
  });
  return !found;
}

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

template <class F>
void fixed(bool value, const F& f) {
  if (value)
    f(std::true_type{});
  else
    f(std::false_type{});
}

// f(known), where known(rule, step) sets to constants those options that decide which arithmetic is
// done: a loop that asks for them is not vectorised. The gradient comes with maximize's sign.
template <class F>
void decide(const SgdRule& rule, const SgdRule::Step& step, const F& f) {
  if (rule.momentum == 0)
    return f([](SgdRule& r, SgdRule::Step&) { r.maximize = false, r.momentum = 0; });
  fixed(step.first, [&](auto first) {
    fixed(rule.nesterov, [&](auto nesterov) {
      f([](SgdRule& r, SgdRule::Step& s) {
        r.maximize = false;
        r.nesterov = decltype(nesterov)::value;
        s.first = decltype(first)::value;
      });
    });
  });
}
template <class F>
void decide(const AdamRule& rule, const AdamRule::Step&, const F& f) {
  fixed(rule.decoupled, [&](auto decoupled) {
    fixed(rule.amsgrad, [&](auto amsgrad) {
      f([](AdamRule& r, AdamRule::Step&) {
        r.maximize = false;
        r.decoupled = decltype(decoupled)::value;
        r.amsgrad = decltype(amsgrad)::value;
      });
    });
  });
}
template <class F>
void decide(const RmspropRule& rule, const RmspropRule::Step&, const F& f) {
  fixed(rule.momentum != 0, [&](auto momentum) {
    fixed(rule.centered, [&](auto centered) {
      f([](RmspropRule& r, RmspropRule::Step&) {
        r.maximize = false;
        if constexpr (!decltype(momentum)::value) r.momentum = 0;
        r.centered = decltype(centered)::value;
      });
    });
  });
}
template <class Rule, class F>
void decide(const Rule&, const typename Rule::Step&, const F& f) {
  f([](Rule& r, typename Rule::Step&) { r.maximize = false; });
}

/// One step of n elements: whole chunks. The arrays are distinct, which the compiler believes of a
/// function's parameters; a moment that the rule has not is null.
template <class Known, class Rule, class S>
void step_lanes(Rule rule, typename Rule::Step step, S inv, int64_t n, S* __restrict weight,
                const S* __restrict grad, S* __restrict m0, S* __restrict m1, S* __restrict m2) {
  constexpr int kMoments = Rule::kMoments;
  Known()(rule, step);
  for (int64_t k = 0; k < n; ++k) {
    S w = weight[k];
    S m[3] = {m0[k], kMoments > 1 ? m1[k] : S(0), kMoments > 2 ? m2[k] : S(0)};
    rule(w, grad[k] * inv, m, step);
    m0[k] = m[0];
    if constexpr (kMoments > 1) m1[k] = m[1];
    if constexpr (kMoments > 2) m2[k] = m[2];
    weight[k] = w;
  }
}
/// The instance of step_lanes() for these options.
template <class S, class Rule>
auto stepper(const Rule& rule, const typename Rule::Step& step) {
  decltype(&step_lanes<void (*)(Rule&, typename Rule::Step&), Rule, S>) chosen = nullptr;
  decide(rule, step, [&](auto known) { chosen = &step_lanes<decltype(known), Rule, S>; });
  return chosen;
}

/// Before and after a step, the lanes of a 16-bit weight that is kept as W, and those of its extra.
void join_lanes(Weights kind, float* weight, const float* extra, int64_t n) {
  if (kind != Weights::Kahan) return;
  for (int64_t k = 0; k < n; ++k) weight[k] = join_weight<Weights::Kahan>(weight[k], extra[k]);
}
template <Weights W, class T>
void split_as(float* __restrict weight, float* __restrict extra, int64_t n) {
  for (int64_t k = 0; k < n; ++k) split_weight<W, T>(float{weight[k]}, weight[k], extra[k]);
}
void split_lanes(Weights kind, Dtype type, float* weight, float* extra, int64_t n) {
  const bool half = type == kFloat16;
  if (kind == Weights::Stochastic)
    (half ? split_as<Weights::Stochastic, Half>
          : split_as<Weights::Stochastic, BFloat16>)(weight, extra, n);
  if (kind == Weights::Kahan)
    (half ? split_as<Weights::Kahan, Half> : split_as<Weights::Kahan, BFloat16>)(weight, extra, n);
}

/// One step of one parameter.
template <class Rule>
void update(const UpdateSlot& slot, const Rule& rule, double factor) {
  const double count = slot.step.defined() ? value(slot.step) + 1 : 0;
  const typename Rule::Step step = slot.step.defined() ? rule.begin(count) : typename Rule::Step();
  const Weights kind = slot.keeping.weights;
  const bool master = kind == Weights::Master;
  const Array extra = kind == Weights::Stochastic ? uniform(slot.param, slot.keeping.extra)
                      : kind == Weights::Kahan    ? slot.keeping.extra
                                                  : Array();
  // What is stepped: the master or the parameter. The master's rounding and the 16-bit copy are
  // written only.
  enum : size_t { kWeight, kExtra, kRounded, kLow, kGrad, kMoment };
  constexpr size_t N = kMoment + Rule::kMoments;
  const Array none;
  std::array<const Array*, N> arrays{master ? &slot.keeping.extra : &slot.param, &extra,
                                     master ? &slot.param : &none, &slot.low, &slot.grad};
  for (size_t i = 0; i < Rule::kMoments; ++i) arrays[kMoment + i] = &slot.moments[i];
  Use use;
  for (size_t a = 0; a < N; ++a) {
    if (!arrays[a]->defined()) {
      arrays[a] = &slot.param;  // something to walk along
      continue;
    }
    if (a != kRounded && a != kLow) use.read |= 1u << a;
    if (a != kGrad) use.written |= 1u << a;
  }
  in_precision(slot.param, [&](auto t) {
    using S = typename decltype(t)::type;
    const S inv = static_cast<S>(rule.maximize ? -factor : factor);
    const auto run = stepper<S>(rule, step);
    const auto moment = [](const auto& lanes, size_t i) {
      return kMoment + i < N ? lanes[std::min(kMoment + i, N - 1)] : nullptr;
    };
    each_block<S>(arrays, use, [&](const auto& at, int64_t n, int64_t) {
      if constexpr (std::is_same_v<S, float>) join_lanes(kind, at[kWeight], at[kExtra], n);
      run(rule, step, inv, n, at[kWeight], at[kGrad], moment(at, 0), moment(at, 1), moment(at, 2));
      if constexpr (std::is_same_v<S, float>)
        split_lanes(kind, slot.param.dtype(), at[kWeight], at[kExtra], n);
      for (const size_t copy : {kRounded, kLow})
        if (use.writes(copy)) std::copy_n(at[kWeight], n, at[copy]);
    });
  });
  if (kind == Weights::Stochastic) ++slot.keeping.extra.data<int64_t>()[1];
  if (slot.step.defined()) fill(slot.step, count);
}

/// NormOrder's terms and their sum where p is 2 and the unit 1: what a loop vectorises.
struct Squares {
  static double term(double x) { return x * x; }
  static double join(double a, double b) { return a + b; }
};
/// The terms of all elements, joined in an order that does not depend on the number of threads.
template <class S, class Order>
double joined(const Array& x, const Order& order) {
  constexpr int64_t kPart = 4096;
  const int64_t n = x.numel();
  std::vector<double> parts(static_cast<size_t>((n + kPart - 1) / kPart));
  parallel_ranges(static_cast<int64_t>(parts.size()), 4, [&](int64_t begin, int64_t end) {
    Lanes<S> lanes(x.dtype());
    for (int64_t part = begin; part < end; ++part) {
      double sums[kLanes] = {};
      const auto take = [&](const S* v, int64_t count) {
        for (int64_t k = 0; k < count; ++k)
          sums[k] = order.join(sums[k], order.term(static_cast<double>(v[k])));
      };
      char* at = static_cast<char*>(x.raw()) + part * kPart * lanes.item();
      int64_t rest = std::min(kPart, n - part * kPart);
      for (int64_t m; rest > 0; rest -= m, at += m * lanes.item()) {
        m = Lanes<S>::block(rest);
        const S* v = lanes.read(at, 1, m);
        if (m < kLanes) take(v, m);
        for (int64_t i = 0; i + kLanes <= m; i += kLanes) take(v + i, kLanes);
      }
      double& all = parts[static_cast<size_t>(part)];
      for (const double sum : sums) all = order.join(all, sum);
    }
  });
  double all = 0;
  for (const double part : parts) all = order.join(all, part);
  return all;
}

}  // namespace

void CpuBackend::check_finite(std::span<const Array> xs, const Array& found_inf,
                              const Array& inv_scale, const Array& first) {
  const double factor = inv_scale.defined() ? value(inv_scale) : 1;
  const auto bad = std::find_if(xs.begin(), xs.end(),
                                [&](const Array& x) { return x.defined() && !finite(x, factor); });
  if (bad == xs.end()) return;
  fill(found_inf, 1);
  if (first.defined()) fill(first, bad - xs.begin());
}

void CpuBackend::unscale(std::span<const Array> grads, const Array& inv_scale,
                         const Array& found_inf, const Array& first) {
  const double inverse = value(inv_scale);
  int64_t first_bad = -1;
  // All of them, also after a bad one: a caller who looks sees one state, not two.
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i].defined()) continue;
    if (!cpu::unscale(grads[i], inverse) && first_bad < 0) first_bad = static_cast<int64_t>(i);
    grads[i].bump_version();
  }
  if (first_bad < 0) return;
  if (found_inf.defined()) fill(found_inf, 1);
  if (first.defined()) fill(first, first_bad);
}

void CpuBackend::list_norm(const ListNorm& n) {
  const NormOrder order{n.p, n.unit.defined() ? value(n.unit) : 1};
  double sum = 0;
  for (const Array& given : n.xs) {
    if (!given.defined() || given.numel() == 0) continue;
    const Array x = given.to_contiguous();
    const bool squares = order.p == 2 && order.unit == 1;
    const auto go = [&](auto t) {
      using S = typename decltype(t)::type;
      sum = order.join(sum, squares ? joined<S>(x, Squares{}) : joined<S>(x, order));
    };
    if (is_16bit(x.dtype()) || x.dtype() == kFloat32)
      go(Type<float>{});
    else
      go(Type<double>{});
  }
  const double norm = order.whole(sum);
  fill(n.norm, norm);
  fill(n.factor, NormOrder::factor(value(n.norm), n.most));
}

void CpuBackend::update(std::span<const UpdateSlot> slots, const UpdateRule& rule,
                        const StepControl& control) {
  if (control.clip.defined()) {
    std::vector<Array> grads;
    for (const UpdateSlot& slot : slots) grads.push_back(slot.grad);
    unscale(grads, control.clip, {}, {});
  }
  for (const UpdateSlot& slot : slots) {
    for (const Array* a : {&slot.param, &slot.keeping.extra, &slot.step, &slot.low})
      if (a->defined()) a->bump_version();
    for (const Array& m : slot.moments)
      if (m.defined()) m.bump_version();
  }
  if (says_skip(control)) return;
  const double factor = gradient_factor(control);
  std::visit(
      [&](const auto& r) {
        for (const UpdateSlot& slot : slots) cpu::update(slot, r, factor);
      },
      rule);
}

void CpuBackend::scale_loss(const LossScaling& s) {
  if (s.loss.numel() != 1) return Backend::scale_loss(s);
  const double loss = value(s.loss);
  const float by = static_cast<float>(value(s.scale));
  const bool wide = s.loss.dtype() == kFloat64 || s.scaled.dtype() == kFloat64;
  set(s.scaled, wide ? loss * by : static_cast<float>(loss) * by);
  const double bad = !is_finite(loss) ? 1 : s.begins ? 0 : value(s.bad_loss);
  set(s.bad_loss, bad);
  if (s.factor.defined()) set(s.factor, by);
  if (s.inverse.defined()) set(s.inverse, 1 / by);
  if (s.found_inf.defined()) set(s.found_inf, bad);
  if (s.first.defined()) set(s.first, -1);
}

void CpuBackend::scaler_update(const ScalerUpdate& u, const ScalerLaw& law) {
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
  set(u.scale, after.scale);
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
