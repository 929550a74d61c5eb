// What the tests of list-wise updates share: arrays that lie in several ways, parameters with all
// that an optimizer keeps of them, and rules.
#pragma once
#include <string>
#include <vector>

#include "../on_gpu.h"
#include "halftape/tests/support/dtypes.h"
#include "halftape/tests/support/nonfinite.h"

namespace halftape::testing::updates {

using testing::kFloats;
using testing::kInf, testing::kNaN;

/// Ways in which an array of a shape can lie.
enum class Lies { Plain, Swapped, Spaced, Shifted };
constexpr Lies kWays[] = {Lies::Plain, Lies::Swapped, Lies::Spaced, Lies::Shifted};

/// Random numbers in (low, high).
inline Array draw(const Shape& shape, Dtype d, Lies lies, uint64_t seed, double low = -2,
                  double high = 2) {
  const auto filled = [&](const Shape& s) {
    const Array a(s, d, kCPU);
    cpu_backend().random(a, Distribution::Uniform, low, high, {.seed = seed, .offset = 0});
    return a;
  };
  Shape larger = shape;
  const int last = shape.size() - 1;
  switch (lies) {
    case Lies::Plain:
      break;
    case Lies::Swapped:
      if (shape.size() < 2) break;
      std::swap(larger[0], larger[last]);
      return filled(larger).transpose(0, last);
    case Lies::Spaced:
      if (shape.empty()) break;
      larger[last] *= 2;
      return filled(larger).slice(last, 0, larger[last], 2);
    case Lies::Shifted: {
      const Array a = filled({numel(shape) + 1});
      return {a.buffer(), shape, contiguous_strides(shape), 1, d};
    }
  }
  return filled(larger);
}
inline Array draw(const Shape& shape, Dtype d, uint64_t seed) {
  return draw(shape, d, Lies::Plain, seed);
}

inline Array one(double value) { return full({1}, value, kFloat32, kCPU); }
inline void set(const Array& a, int64_t i, double value) {
  Array at = a;
  for (int d = a.dim() - 1; d >= 0; i /= a.size(d--)) {
    const int64_t j = i % a.size(d);
    at = at.slice(d, j, j + 1);
  }
  cpu_backend().fill(at, value);
}

inline std::vector<Array> on_gpu(const std::vector<Array>& all) {
  std::vector<Array> there;
  for (const Array& a : all) there.push_back(testing::on_gpu(a));
  return there;
}
using testing::on_gpu;

/// One parameter with all that an optimizer keeps of it, on both devices.
struct Kept {
  std::vector<Array> here;  // param, grad, extra, three moments, step, 16-bit copy
  std::vector<Array> there;
  Weights weights;

  Kept(const Shape& shape, Dtype param, Dtype grad, Dtype moment, Weights kind, Lies lies,
       Lies grad_lies)
      : weights(kind) {
    Array extra;
    if (kind == Weights::Master) extra = draw(shape, kFloat32, lies, 7);
    if (kind == Weights::Kahan) extra = draw(shape, param, lies, 8, -1e-3, 1e-3);
    if (kind == Weights::Stochastic) {
      extra = full({2}, 5, kInt64, kCPU);
      set(extra, 0, 1234567891011);
    }
    here = {
        draw(shape, param, lies, 1),
        draw(shape, grad, grad_lies, 2),
        extra,
        draw(shape, moment, lies, 3, 0, 2),
        draw(shape, moment, lies, 4, 0, 2),
        draw(shape, moment, lies, 5, 0, 2),
        full({}, 0, kFloat32, kCPU),
        param == kFloat32 ? draw(shape, seven(shape) ? kFloat16 : kBFloat16, lies, 6) : Array()};
    there = on_gpu(here);
  }
  static bool seven(const Shape& shape) { return numel(shape) % 7 == 0; }
  /// With the state that a rule needs.
  UpdateSlot slot(const std::vector<Array>& a, const UpdateRule& rule) const {
    std::vector<int> moments;
    if (const auto* sgd = std::get_if<SgdRule>(&rule); !sgd || sgd->momentum != 0) moments = {0};
    if (const auto* adam = std::get_if<AdamRule>(&rule))
      moments = adam->amsgrad ? std::vector{0, 1, 2} : std::vector{0, 1};
    if (const auto* rmsprop = std::get_if<RmspropRule>(&rule)) {
      if (rmsprop->momentum != 0) moments.push_back(1);
      if (rmsprop->centered) moments.push_back(2);
    }
    UpdateSlot s{a[0], a[1], {}, {}, {weights, a[2]}, a[7]};
    for (const int i : moments) s.moments[static_cast<size_t>(i)] = a[static_cast<size_t>(3 + i)];
    if (!moments.empty() && !std::holds_alternative<LionRule>(rule)) s.step = a[6];
    return s;
  }
  std::string differ(double ulps) const {
    for (size_t i = 0; i < here.size(); ++i) {
      if (!here[i].defined()) continue;
      const std::string text = differ_on_gpu(there[i], here[i], ulps);
      if (!text.empty()) return "array " + std::to_string(i) + ": " + text;
      if (there[i].version() != here[i].version())
        return "array " + std::to_string(i) + " has another version";
    }
    return {};
  }
};

/// Every way in which a parameter is kept, in several layouts and dtypes.
inline std::vector<Kept> many_kept() {
  std::vector<Kept> all;
  const auto add = [&](Dtype param, Dtype grad, Dtype moment, Weights kind) {
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{13}, Shape{24, 100}})
      for (const auto& [lies, grad_lies] : {std::pair{Lies::Plain, Lies::Plain},
                                            {Lies::Plain, Lies::Swapped},
                                            {Lies::Swapped, Lies::Swapped},
                                            {Lies::Spaced, Lies::Plain},
                                            {Lies::Shifted, Lies::Shifted}})
        all.emplace_back(shape, param, grad, moment, kind, lies, grad_lies);
  };
  add(kFloat32, kFloat32, kFloat32, Weights::Plain);
  add(kFloat32, kFloat16, kFloat32, Weights::Plain);
  add(kFloat64, kFloat64, kFloat64, Weights::Plain);
  add(kFloat64, kFloat32, kFloat64, Weights::Plain);
  for (const Dtype d : {kFloat16, kBFloat16}) {
    add(d, d, d, Weights::Plain);
    for (const Weights kind : {Weights::Master, Weights::Stochastic, Weights::Kahan})
      add(d, d, kFloat32, kind);
  }
  return all;
}

const UpdateRule kRules[] = {
    SgdRule{.lr = 0.1},
    SgdRule{.lr = 0.01, .momentum = 0.9, .dampening = 0.25, .weight_decay = 0.1},
    SgdRule{.lr = 0.3, .momentum = 0.5, .weight_decay = 0.01, .nesterov = true, .maximize = true},
    AdamRule{.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
    AdamRule{
        .lr = 0.1, .beta1 = 0.8, .beta2 = 0.9, .eps = 1e-3, .weight_decay = 0.1, .decoupled = true},
    AdamRule{.lr = 0.1,
             .beta1 = 0.5,
             .beta2 = 0.75,
             .eps = 1e-8,
             .weight_decay = 0.1,
             .amsgrad = true,
             .maximize = true},
    RmspropRule{.lr = 0.01, .alpha = 0.99, .eps = 1e-8},
    RmspropRule{.lr = 0.1,
                .alpha = 0.75,
                .eps = 1e-3,
                .weight_decay = 0.1,
                .momentum = 0.9,
                .centered = true,
                .maximize = true},
    AdagradRule{.lr = 0.01, .eps = 1e-10},
    AdagradRule{.lr = 0.1, .lr_decay = 0.3, .eps = 1e-3, .weight_decay = 0.1, .maximize = true},
    LionRule{.lr = 0.01, .beta1 = 0.9, .beta2 = 0.99},
    LionRule{.lr = 0.1, .beta1 = 0.5, .beta2 = 0.75, .weight_decay = 0.1, .maximize = true}};

}  // namespace halftape::testing::updates
