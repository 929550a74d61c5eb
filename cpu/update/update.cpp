// The optimizers' rules over lists of parameters.
#include <algorithm>
#include <array>
#include <vector>

#include "halftape/core/formula/philox.h"
#include "halftape/cpu/cpu_backend.h"
#include "halftape/cpu/update/values.h"
#include "halftape/cpu/vector/loop.h"

namespace halftape::cpu {
namespace {

bool says_skip(const StepControl& control) {
  return control.found_inf.defined() && value(control.found_inf) != 0;
}
double gradient_factor(const StepControl& control) {
  return control.inv_scale.defined() ? value(control.inv_scale) : 1;
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

template <int M>
using Moments = std::integral_constant<int, M>;

// decide() calls f(known, Moments<M>): known(rule, step) sets the options that decide which
// arithmetic is done to constants, because a loop that asks for them is not vectorised; with these,
// moments beyond the first M are not used. The gradient already has the sign of maximize.
template <class F>
void decide(const SgdRule& rule, const SgdRule::Step& step, const F& f) {
  if (rule.momentum == 0)
    return f([](SgdRule& r, SgdRule::Step&) { r.maximize = false, r.momentum = 0; }, Moments<0>());
  fixed(step.first, [&](auto first) {
    fixed(rule.nesterov, [&](auto nesterov) {
      f(
          [](SgdRule& r, SgdRule::Step& s) {
            r.maximize = false;
            r.nesterov = decltype(nesterov)::value;
            s.first = decltype(first)::value;
          },
          Moments<1>());
    });
  });
}
template <class F>
void decide(const AdamRule& rule, const AdamRule::Step&, const F& f) {
  fixed(rule.decoupled, [&](auto decoupled) {
    fixed(rule.amsgrad, [&](auto amsgrad) {
      f(
          [](AdamRule& r, AdamRule::Step&) {
            r.maximize = false;
            r.decoupled = decltype(decoupled)::value;
            r.amsgrad = decltype(amsgrad)::value;
          },
          Moments<(decltype(amsgrad)::value ? 3 : 2)>());
    });
  });
}
template <class F>
void decide(const RmspropRule& rule, const RmspropRule::Step&, const F& f) {
  fixed(rule.momentum != 0, [&](auto momentum) {
    fixed(rule.centered, [&](auto centered) {
      f(
          [](RmspropRule& r, RmspropRule::Step&) {
            r.maximize = false;
            if constexpr (!decltype(momentum)::value) r.momentum = 0;
            r.centered = decltype(centered)::value;
          },
          Moments<RmspropRule::kMoments>());
    });
  });
}
template <class Rule, class F>
void decide(const Rule&, const typename Rule::Step&, const F& f) {
  f([](Rule& r, typename Rule::Step&) { r.maximize = false; }, Moments<Rule::kMoments>());
}

/// One step of n elements, in whole chunks. The arrays are distinct, which a compiler believes of a
/// function's parameters alone; moments that the rule does not use may be null.
template <class Known, int M, class Rule, class S>
void step_lanes(Rule rule, typename Rule::Step step, S inv, int64_t n, S* __restrict weight,
                const S* __restrict grad, S* __restrict m0, S* __restrict m1, S* __restrict m2) {
  Known()(rule, step);
  for (int64_t k = 0; k < in_chunks(n); ++k) {
    S w = weight[k];
    S m[3] = {M > 0 ? m0[k] : S(0), M > 1 ? m1[k] : S(0), M > 2 ? m2[k] : S(0)};
    rule(w, grad[k] * inv, m, step);
    if constexpr (M > 0) m0[k] = m[0];
    if constexpr (M > 1) m1[k] = m[1];
    if constexpr (M > 2) m2[k] = m[2];
    weight[k] = w;
  }
}
/// The instance of step_lanes() for these options, and how many moments it uses.
template <class S, class Rule>
struct Stepper {
  decltype(&step_lanes<void (*)(Rule&, typename Rule::Step&), 0, Rule, S>) run = nullptr;
  size_t moments = 0;
  Stepper(const Rule& rule, const typename Rule::Step& step) {
    decide(rule, step, [&](auto known, auto m) {
      run = &step_lanes<decltype(known), m.value, Rule, S>;
      moments = m.value;
    });
  }
};

/// Before and after a step, the lanes of a 16-bit weight that is kept as W, and those of its extra.
void join_lanes(Weights kind, float* weight, const float* extra, int64_t n) {
  if (kind != Weights::Kahan) return;
  for (int64_t k = 0; k < in_chunks(n); ++k)
    weight[k] = join_weight<Weights::Kahan>(weight[k], extra[k]);
}
template <Weights W, class T>
void split_as(float* __restrict weight, float* __restrict extra, int64_t n) {
  for (int64_t k = 0; k < in_chunks(n); ++k)
    split_weight<W, T>(float{weight[k]}, weight[k], extra[k]);
}
void split_lanes(Weights kind, Dtype type, float* weight, float* extra, int64_t n) {
  const bool half = type == kFloat16;
  if (kind == Weights::Stochastic)
    (half ? split_as<Weights::Stochastic, Half>
          : split_as<Weights::Stochastic, BFloat16>)(weight, extra, n);
  if (kind == Weights::Kahan)
    (half ? split_as<Weights::Kahan, Half> : split_as<Weights::Kahan, BFloat16>)(weight, extra, n);
}

/// What a rule does to n lanes of a weight, with those of its gradient and of the moments that it
/// uses.
template <class S>
using LaneStep =
    FunctionRef<void(int64_t n, S* weight, const S* grad, const std::array<S*, kMostMoments>& m)>;

/// One step of one parameter by a rule that has so many moments and uses the first `used` ones.
/// `extra`: what is kept beside a 16-bit weight, or undefined.
template <class S>
void step_slot(const UpdateSlot& slot, const Array& extra, size_t moments, size_t used,
               LaneStep<S> step) {
  const Weights kind = slot.keeping.weights;
  const bool master = kind == Weights::Master;
  // kWeight is what is stepped: the master or the parameter. The master's rounding and the 16-bit
  // copy are only written.
  enum : size_t { kWeight, kExtra, kRounded, kLow, kGrad, kMoment, kAll = kMoment + kMostMoments };
  const Array none;
  std::array<const Array*, kAll> arrays{master ? &slot.keeping.extra : &slot.param, &extra,
                                        master ? &slot.param : &none, &slot.low, &slot.grad};
  for (size_t i = 0; i < kMostMoments; ++i)
    arrays[kMoment + i] = i < moments ? &slot.moments[i] : &none;
  Use use;
  for (size_t a = 0; a < kAll; ++a) {
    if (!arrays[a]->defined()) {
      arrays[a] = &slot.param;  // something to walk along
      if (a >= kMoment && a < kMoment + used) use.missing |= 1u << a;
      continue;
    }
    if (a != kRounded && a != kLow) use.read |= 1u << a;
    if (a != kGrad) use.written |= 1u << a;
  }
  each_block<S>(arrays, use, [&](const std::array<S*, kAll>& at, int64_t n, int64_t) {
    if constexpr (std::is_same_v<S, float>) join_lanes(kind, at[kWeight], at[kExtra], n);
    step(n, at[kWeight], at[kGrad], {at[kMoment], at[kMoment + 1], at[kMoment + 2]});
    if constexpr (std::is_same_v<S, float>)
      split_lanes(kind, slot.param.dtype(), at[kWeight], at[kExtra], n);
    for (const size_t copy : {kRounded, kLow})
      if (use.writes(copy)) std::copy_n(at[kWeight], n, at[copy]);
  });
}

template <class Rule>
void update(const UpdateSlot& slot, const Rule& rule, double factor) {
  const double count = slot.step.defined() ? value(slot.step) + 1 : 0;
  const typename Rule::Step step = slot.step.defined() ? rule.begin(count) : typename Rule::Step();
  const Weights kind = slot.keeping.weights;
  const Array extra = kind == Weights::Stochastic ? uniform(slot.param, slot.keeping.extra)
                      : kind == Weights::Kahan    ? slot.keeping.extra
                                                  : Array();
  with_float_type(slot.param.dtype(), [&](auto t) {
    using S = typename decltype(t)::type;
    const Stepper<S, Rule> stepper(rule, step);
    const S inv = static_cast<S>(rule.maximize ? -factor : factor);
    step_slot<S>(slot, extra, Rule::kMoments, stepper.moments,
                 [&](int64_t n, S* weight, const S* grad, const std::array<S*, kMostMoments>& m) {
                   stepper.run(rule, step, inv, n, weight, grad, m[0], m[1], m[2]);
                 });
  });
  if (kind == Weights::Stochastic) ++slot.keeping.extra.data<int64_t>()[1];
  if (slot.step.defined()) set(slot.step, count);
}

}  // namespace

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

}  // namespace halftape::cpu
