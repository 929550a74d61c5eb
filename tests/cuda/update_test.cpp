// List-wise updates on the GPU give the CPU's bits: verdicts, gradients, parameters and their
// state, the scaler's counts and its warning.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "halftape/core/machine/warn.h"
#include "on_gpu.h"
#if defined(HALFTAPE_SIMT)
#include "device.h"
#include "settings.h"
#endif

using namespace halftape;
using namespace halftape::testing;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

const std::vector<Dtype> floats = {kFloat16, kBFloat16, kFloat32, kFloat64};

/// Ways in which an array of a shape can lie.
enum class Lies { Plain, Swapped, Spaced, Shifted };
constexpr Lies kWays[] = {Lies::Plain, Lies::Swapped, Lies::Spaced, Lies::Shifted};

/// Random numbers in (low, high).
Array draw(const Shape& shape, Dtype d, Lies lies, uint64_t seed, double low = -2,
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
Array draw(const Shape& shape, Dtype d, uint64_t seed) { return draw(shape, d, Lies::Plain, seed); }

Array one(double value) { return full({1}, value, kFloat32, kCPU); }
void set(const Array& a, int64_t i, double value) {
  Array at = a;
  for (int d = a.dim() - 1; d >= 0; i /= a.size(d--)) {
    const int64_t j = i % a.size(d);
    at = at.slice(d, j, j + 1);
  }
  cpu_backend().fill(at, value);
}

std::vector<Array> on_gpu(const std::vector<Array>& all) {
  std::vector<Array> there;
  for (const Array& a : all) there.push_back(testing::on_gpu(a));
  return there;
}
using testing::on_gpu;

/// Judges the same list on both devices, by both calls; says how they differ.
std::string judged(std::vector<Array> xs, const Array& inv_scale, bool divide) {
  const std::vector<Array> there = on_gpu(xs);
  std::vector<uint64_t> before;
  for (const Array& x : xs) before.push_back(x.defined() ? x.version() : 0);
  const Array found = one(0), first = full({1}, -1, kInt64, kCPU);
  const Array found_there = on_gpu(found), first_there = on_gpu(first), inverse = on_gpu(inv_scale);
  if (divide) {
    cpu_backend().unscale(xs, inv_scale, found, first);
    backend(kCUDA).unscale(there, inverse, found_there, first_there);
  } else {
    cpu_backend().check_finite(xs, found, inv_scale, first);
    backend(kCUDA).check_finite(there, found_there, inverse, first_there);
  }
  std::string text = differ_on_gpu(found_there, found);
  if (text.empty()) text = differ_on_gpu(first_there, first);
  for (size_t i = 0; i < xs.size() && text.empty(); ++i) {
    if (!xs[i].defined()) continue;
    text = differ_on_gpu(there[i], xs[i]);
    if (there[i].version() != xs[i].version() - before[i]) text = "other version";
  }
  return text;
}

}  // namespace

TEST_CASE("the GPU judges and divides gradients of every size, dtype and layout as the CPU does") {
  for (const bool divide : {false, true}) {
    for (const double inverse : {1.0, 0.25, 3e-39, 7e9, kInf}) {
      CAPTURE(divide);
      CAPTURE(inverse);
      std::vector<Array> xs = {Array(), Array({0}, kFloat16, kCPU)};
      uint64_t seed = 0;
      for (const Dtype d : floats) {
        for (const Lies lies : kWays) {
          for (const Shape& shape : {Shape{}, Shape{7}, Shape{8}, Shape{9}, Shape{2047},
                                     Shape{2049}, Shape{3, 5}, Shape{65, 67}, Shape{4, 1, 1030}}) {
            xs.push_back(draw(shape, d, lies, ++seed));
          }
        }
      }
      CHECK(judged(xs, one(inverse), divide) == "");
      if (!divide) CHECK(judged(xs, {}, divide) == "");
    }
  }
}

TEST_CASE("the GPU finds one bad element anywhere, and names the first array that has one") {
  for (const bool divide : {false, true}) {
    for (const Dtype d : floats) {
      for (const Lies lies : kWays) {
        for (const double bad : {kInf, -kInf, kNaN}) {
          for (const int64_t i : {0, 6, 7, 8, 2048, 2055, 4100, 4199}) {
            CAPTURE(divide);
            CAPTURE(d);
            CAPTURE(i);
            std::vector<Array> xs = {draw({40}, kFloat32, 1), Array(), draw({3}, kFloat64, 2),
                                     draw({60, 70}, d, lies, 3), draw({60, 70}, d, lies, 4)};
            set(xs[3], i, bad);
            set(xs[4], 17, bad);
            const Array found = on_gpu(one(0)), first = on_gpu(full({1}, -1, kInt64, kCPU));
            backend(kCUDA).check_finite(on_gpu(xs), found, {}, first);
            CHECK(read_double(found) == 1);
            CHECK(read_int64(first) == 3);
            CHECK(judged(xs, one(0.5), divide) == "");
          }
        }
      }
    }
  }
}

TEST_CASE("a rounding to 16 bits that overflows is found, and a verdict is never taken back") {
  for (const double inverse : {2.0, 2.001})
    CHECK(judged({draw({9}, kFloat32, 1), full({40}, 32752, kFloat16, kCPU),
                  full({40}, 32760, kFloat16, kCPU)},
                 one(inverse), true) == "");
  const Array found = on_gpu(one(1));
  backend(kCUDA).unscale(on_gpu(std::vector<Array>{draw({40}, kFloat16, 1)}), on_gpu(one(0.5)),
                         found);
  CHECK(read_double(found) == 1);
}

TEST_CASE("lists longer than a launch has room for are judged and updated to their end") {
  std::vector<Array> xs;
  for (uint64_t i = 0; i < 500; ++i)
    xs.push_back(draw({5, static_cast<int64_t>(i % 7)}, floats[i % 4], kWays[i / 4 % 4], i));
  for (const bool divide : {false, true}) {
    std::vector<Array> ys;
    for (const Array& x : xs) ys.push_back(twin(x));
    CHECK(judged(ys, one(0.5), divide) == "");
    set(ys[499], 3, kNaN);
    CHECK(judged(ys, one(0.5), divide) == "");
    set(ys[233], 2, kNaN);
    CHECK(judged(ys, one(0.5), divide) == "");
  }
  std::vector<UpdateSlot> here, there;
  for (size_t i = 0; i < xs.size(); ++i) {
    const Array step = full({}, static_cast<double>(i % 3), kFloat32, kCPU);
    const Array g = draw(xs[i].shape(), kFloat32, i), v = draw(xs[i].shape(), xs[i].dtype(), i);
    here.push_back({xs[i], g, {v}, step});
    there.push_back({on_gpu(xs[i]), on_gpu(g), {on_gpu(v)}, on_gpu(step)});
  }
  const SgdRule rule{.lr = 0.1, .momentum = 0.9, .dampening = 0.5, .weight_decay = 0.01};
  cpu_backend().update(here, rule, {});
  backend(kCUDA).update(there, rule, {});
  std::string text;
  for (size_t i = 0; i < xs.size(); ++i)
    text += differ_on_gpu(there[i].param, here[i].param) +
            differ_on_gpu(there[i].moments[0], here[i].moments[0]) +
            differ_on_gpu(there[i].step, here[i].step);
  CHECK(text == "");
}

namespace {

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
std::vector<Kept> many_kept() {
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

}  // namespace

namespace {

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

}  // namespace

TEST_CASE("every rule on the GPU gives the CPU's bits however parameters are kept and lie") {
  for (const UpdateRule& rule : kRules) {
    std::vector<Kept> kept = many_kept();
    const Array found = one(0), inverse = one(0.3), clip = one(0.7);
    for (int step = 0; step < 4; ++step) {
      std::vector<UpdateSlot> here, there;
      for (const Kept& k : kept) {
        here.push_back(k.slot(k.here, rule));
        there.push_back(k.slot(k.there, rule));
      }
      const bool scaled = step == 1 || step == 2, clips = step > 1;
      cpu_backend().update(here, rule,
                           {.found_inf = scaled ? found : Array(),
                            .inv_scale = scaled ? inverse : Array(),
                            .clip = clips ? clip : Array()});
      backend(kCUDA).update(there, rule,
                            {.found_inf = scaled ? on_gpu(found) : Array(),
                             .inv_scale = scaled ? on_gpu(inverse) : Array(),
                             .clip = clips ? on_gpu(clip) : Array()});
    }
    // Adam's corrections: the devices' pow() may differ in a double's last bit.
    const double ulps = std::holds_alternative<AdamRule>(rule) ? 1 : 0;
    for (size_t i = 0; i < kept.size(); ++i) {
      CAPTURE(rule.index());
      CAPTURE(i);
      CHECK(kept[i].differ(ulps) == "");
    }
  }
}

TEST_CASE(
    "an update clips the gradients as they are clipped by themselves, also when it is skipped") {
  const UpdateRule rule = kRules[3];
  for (const bool skipped : {false, true}) {
    for (const double factor : {0.3, 1.0}) {
      CAPTURE(skipped);
      CAPTURE(factor);
      const std::vector<Kept> kept = many_kept();
      std::vector<UpdateSlot> apart, together;
      std::vector<std::vector<Array>> others;
      std::vector<Array> grads;
      for (const Kept& k : kept) {
        apart.push_back(k.slot(k.there, rule));
        grads.push_back(apart.back().grad);
        others.push_back(on_gpu(k.here));
        together.push_back(k.slot(others.back(), rule));
      }
      const Array found = on_gpu(one(skipped ? 1 : 0)), clip = on_gpu(one(factor));
      backend(kCUDA).unscale(grads, clip);
      backend(kCUDA).update(apart, rule, {.found_inf = found});
      backend(kCUDA).update(together, rule, {.found_inf = found, .clip = clip});
      for (size_t i = 0; i < kept.size(); ++i) {
        CAPTURE(i);
        const std::vector<Array>&here = kept[i].here, &there = kept[i].there, &mine = others[i];
        for (size_t k = 0; k < here.size(); ++k) {
          if (!here[k].defined()) continue;
          CHECK(differ_on_gpu(mine[k], on_cpu(there[k])) == "");
          CHECK(mine[k].version() == there[k].version());
        }
        if (here[1].numel() > 0)  // gradients are others, and the parameters if that was the plan
          CHECK((differ_on_gpu(mine[1], here[1]) == "") == (factor == 1));
        if (here[0].numel() > 1) CHECK((differ_on_gpu(mine[0], here[0]) == "") == skipped);
      }
    }
  }
}

TEST_CASE("a parameter of many blocks is told its count of steps by a launch before") {
  std::vector<Kept> kept;
  kept.emplace_back(Shape{(1 << 21) + 5}, kFloat16, kFloat16, kFloat32, Weights::Stochastic,
                    Lies::Plain, Lies::Plain);
  const UpdateRule rule = kRules[3];
  for (int step = 0; step < 2; ++step) {
    const UpdateSlot here = kept[0].slot(kept[0].here, rule),
                     there = kept[0].slot(kept[0].there, rule);
    cpu_backend().update({&here, 1}, rule, {});
    backend(kCUDA).update({&there, 1}, rule, {});
  }
  CHECK(kept[0].differ(1) == "");
}

TEST_CASE("a check and a norm in one launch leave what the two leave one after the other") {
  std::vector<Array> xs = {Array(), draw({0}, kFloat16, 1)};
  uint64_t seed = 0;
  for (const Dtype d : floats)
    for (const Lies lies : kWays)
      for (const Shape& shape : {Shape{}, Shape{7}, Shape{2049}, Shape{65, 67}})
        for (int i = 0; i < 4; ++i)  // more than a launch has room for
          xs.push_back(draw(shape, d, lies, ++seed));
  for (const bool divides : {false, true}) {
    for (const bool asks : {false, true}) {
      for (const int64_t bad : {-1, 2, 100, 257}) {
        for (const double by : {1.0, 0.3}) {
          CAPTURE(divides);
          CAPTURE(asks);
          CAPTURE(bad);
          struct Left {
            std::vector<Array> xs;
            Array found, first, norm, factor;
          };
          const auto run = [&](bool together) {
            Left left{on_gpu(xs), on_gpu(one(0)), on_gpu(full({1}, -1, kInt64, kCPU)),
                      full({}, -1, kFloat64, kCUDA), full({}, -1, kFloat64, kCUDA)};
            if (bad >= 0) backend(kCUDA).fill(left.xs[static_cast<size_t>(bad)], -kInf);
            const GradientCheck check{left.xs, on_gpu(one(by)), asks ? left.found : Array(),
                                      asks ? left.first : Array(), divides};
            std::vector<Array> defined(left.xs.begin() + 1, left.xs.end());
            const ListNorm n{.xs = defined, .most = 3, .norm = left.norm, .factor = left.factor};
            if (together) {
              backend(kCUDA).check_and_norm(check, n);
            } else if (asks || divides) {
              backend(kCUDA).check(check);
              backend(kCUDA).list_norm(n);
            } else {
              backend(kCUDA).list_norm(n);
            }
            return left;
          };
          const Left apart = run(false), together = run(true);
          const auto same = [](const Array& a, const Array& b) {
            const double x = read_double(a), y = read_double(b);
            CHECK((x == y || (std::isnan(x) && std::isnan(y))));
          };
          same(together.norm, apart.norm);
          same(together.factor, apart.factor);
          same(together.found, apart.found);
          same(together.first, apart.first);
          std::string text;
          for (size_t i = 1; i < xs.size(); ++i)
            text += differ_on_gpu(together.xs[i], on_cpu(apart.xs[i]));
          CHECK(text == "");
          CHECK(read_int64(together.first) == (asks ? bad : -1));
          CHECK(std::isfinite(read_double(together.norm)) == (bad < 0));
        }
      }
    }
  }
}

TEST_CASE("the GPU pushes numbers into a ring as the CPU does") {
  for (const Dtype d : floats) {
    for (const Dtype given : floats) {
      CAPTURE(d);
      CAPTURE(given);
      const Array here = draw({6}, d, Lies::Spaced, 1), count = full({}, 2, kInt64, kCPU);
      const Array there = on_gpu(here), count_there = on_gpu(count);
      for (uint64_t i = 0; i < 9; ++i) {
        const Array value = draw({}, given, 10 + i);
        cpu_backend().push(here, count, value);
        backend(kCUDA).push(there, count_there, on_gpu(value));
        CHECK(differ_on_gpu(there, here) == "");  // and what lies between its elements
      }
      CHECK(read_int64(count_there) == 11);
      CHECK(read_int64(count) == 11);
    }
  }
}

TEST_CASE(
    "the norm of a list and what clips it are the CPU's, and the same bits for every layout") {
  const std::vector<Shape> shapes = {{}, {0}, {1}, {7}, {256}, {3, 5}, {2049}, {40, 70}, {5000}};
  for (const double p : {0.5, 1.0, 2.0, 3.0, kInf}) {
    for (const Dtype d : floats) {
      for (const Lies lies : kWays) {
        for (const int copies : {1, 12}) {  // more than a launch has room for
          CAPTURE(p);
          CAPTURE(d);
          CAPTURE(static_cast<int>(lies));
          std::vector<Array> xs{Array()};
          for (int i = 0; i < copies; ++i)
            for (const Shape& shape : shapes) xs.push_back(draw(shape, d, lies, xs.size()));
          const Dtype wide = d == kFloat64 ? d : kFloat32;
          const auto norm_of = [&](const std::vector<Array>& arrays, Device device) {
            ListNorm n{.xs = arrays,
                       .p = p,
                       .unit = d == kFloat64 ? full({}, 1.5, kFloat64, device) : Array(),
                       .most = 3,
                       .norm = full({}, -1, wide, device),
                       .factor = full({}, -1, wide, device)};
            backend(device).list_norm(n);
            return std::pair(read_double(n.norm), read_double(n.factor));
          };
          const auto here = norm_of(xs, kCPU), there = norm_of(on_gpu(xs), kCUDA);
          double sum = 0;
          for (const Array& x : xs) {
            if (!x.defined()) continue;
            const Array y = x.to(kFloat64).to_contiguous();
            for (const double v : std::span(y.data<double>(), static_cast<size_t>(y.numel())))
              sum = p == kInf ? std::max(sum, std::abs(v)) : sum + std::pow(std::abs(v), p);
          }
          const double right = p == kInf ? sum : std::pow(sum, 1 / p);
          const double eps = d == kFloat64 ? 1e-13 : 1.2e-7;
          for (const auto& found : {here, there}) {
            const double norm = found.first, factor = found.second;
            CHECK(std::abs(norm - right) <= eps * right);
            CHECK(std::abs(factor - std::min(1.0, 3 / (right + 1e-6))) <= 2 * eps);
          }
        }
      }
    }
  }
}

TEST_CASE("a norm that is not finite changes nothing, on the GPU neither") {
  for (const double bad : {kInf, -kInf, kNaN}) {
    for (const double p : {1.0, 2.0, kInf}) {
      const Array x = draw({3000}, kFloat32, 5);
      set(x, 2990, bad);
      for (const Device device : {Device(kCPU), Device(kCUDA)}) {
        const Array there = x.to(device), norm = full({}, 0, kFloat32, device),
                    factor = full({}, 0, kFloat32, device);
        backend(device).list_norm({{&there, 1}, p, {}, 1, norm, factor});
        CHECK(std::isnan(read_double(norm)) == std::isnan(bad));
        CHECK_FALSE(std::isfinite(read_double(norm)));
        CHECK(read_double(factor) == 1);
      }
    }
  }
  const Array norm = full({}, 5, kFloat32, kCUDA), factor = full({}, 5, kFloat32, kCUDA);
  backend(kCUDA).list_norm({{}, 2, {}, 1, norm, factor});
  CHECK(read_double(norm) == 0);
  CHECK(read_double(factor) == 1);
}

#if defined(HALFTAPE_SIMT)
TEST_CASE("all threads of an update begin with the same count, whichever comes first") {
  simt::in_every_order([] {
    for (const Weights kind : {Weights::Stochastic, Weights::Kahan}) {
      const Kept kept({3000}, kFloat16, kFloat16, kFloat32, kind, Lies::Plain, Lies::Plain);
      const UpdateRule rule = kRules[3];
      for (int step = 0; step < 2; ++step) {
        const UpdateSlot here = kept.slot(kept.here, rule), there = kept.slot(kept.there, rule);
        cpu_backend().update({&here, 1}, rule, {});
        backend(kCUDA).update({&there, 1}, rule, {});
      }
      CHECK(kept.differ(1) == "");
    }
  });
}
#endif

TEST_CASE("a loss is scaled and looked at on the GPU as on the CPU") {
  for (const Dtype d : floats) {
    for (const double loss : {0.75, -3e4, 1e-7, kInf, kNaN}) {
      for (const bool begins : {false, true}) {
        for (const double bad : {0.0, 1.0}) {
          CAPTURE(d);
          CAPTURE(loss);
          const auto scaling = [&](Device device) {
            LossScaling s{.scale = full({}, 1024, kFloat32, device),
                          .bad_loss = full({}, bad, kFloat32, device),
                          .begins = begins};
            s.loss = full({}, loss, d, device);
            s.scaled = full({}, 5, d == kFloat64 ? d : kFloat32, device);
            s.factor = full({}, 5, kFloat32, device);
            s.inverse = full({}, 5, kFloat32, device);
            s.found_inf = full({}, 5, kFloat32, device);
            s.first = full({}, 5, kInt64, device);
            return s;
          };
          const LossScaling here = scaling(kCPU), there = scaling(kCUDA);
          cpu_backend().scale_loss(here);
          backend(kCUDA).scale_loss(there);
          const auto same = [](const Array& a, const Array& b) {
            const double x = read_double(a), y = read_double(b);
            CHECK((x == y || (std::isnan(x) && std::isnan(y))));
          };
          same(here.scaled, there.scaled);
          same(here.bad_loss, there.bad_loss);
          same(here.factor, there.factor);
          same(here.inverse, there.inverse);
          same(here.found_inf, there.found_inf);
          same(here.first, there.first);
          CHECK(read_double(here.bad_loss) ==
                (std::isfinite(loss) && (begins || bad == 0) ? 0 : 1));
          CHECK(read_double(here.found_inf) == read_double(here.bad_loss));
          CHECK(read_double(here.first) == -1);
        }
      }
    }
  }
}

TEST_CASE("an update that the device says to skip changes nothing there") {
  std::vector<Kept> kept = many_kept();
  const StepControl skip{on_gpu(one(1)), on_gpu(one(0.5))};
  for (const UpdateRule& rule : kRules) {
    std::vector<UpdateSlot> slots;
    for (const Kept& k : kept) slots.push_back(k.slot(k.there, rule));
    backend(kCUDA).update(slots, rule, skip);
  }
  for (const Kept& k : kept)
    for (size_t i = 0; i < k.here.size(); ++i)
      if (k.here[i].defined()) CHECK(differ_on_gpu(k.there[i], k.here[i]) == "");
}

TEST_CASE("the scaler's state and counts on the GPU are the CPU's after any run of verdicts") {
  for (const int64_t hysteresis : {1, 3}) {
    for (const size_t optimizers : {1u, 3u, 300u}) {
      CAPTURE(hysteresis);
      CAPTURE(optimizers);
      const ScalerLaw law{.growth_interval = 3, .hysteresis = hysteresis};
      const Array scale = one(1024), trackers = full({2}, 0, kInt32, kCPU),
                  counts = full({8}, 0, kInt64, kCPU);
      const Array s = on_gpu(scale), t = on_gpu(trackers), c = on_gpu(counts);
      uint32_t bits = 12345;
      for (int step = 0; step < 40; ++step) {
        bits = bits * 1664525 + 1013904223;
        std::vector<ScalerFinding> here, there;
        const size_t bad = bits >> 8 & 1 ? (bits >> 9) % optimizers : optimizers;
        for (size_t i = 0; i < optimizers; ++i) {
          const bool found = i == bad || (bad < optimizers && i == optimizers - 1);
          here.push_back({one(found ? 1 : 0),
                          full({1}, found ? static_cast<int64_t>(i + 7) : -1, kInt64, kCPU),
                          static_cast<int64_t>(10 * i)});
          there.push_back(
              {on_gpu(here.back().found_inf), on_gpu(here.back().first), here.back().optimizer});
        }
        const Array loss = one(bits >> 20 & 3 ? 0 : 1);
        const bool with_loss = step % 2 == 0, counted = step % 5 != 4;
        cpu_backend().scaler_update(
            {scale, trackers, counted ? counts : Array(), here, with_loss ? loss : Array()}, law);
        backend(kCUDA).scaler_update(
            {s, t, counted ? c : Array(), there, with_loss ? on_gpu(loss) : Array()}, law);
        CHECK(differ_on_gpu(s, scale) == "");
        CHECK(differ_on_gpu(t, trackers) == "");
        CHECK(differ_on_gpu(c, counts) == "");
      }
      CHECK(s.version() == scale.version());
    }
  }
}

namespace {

/// A GradScaler's state, and what one optimizer's step found.
struct Scaler {
  Array scale = one(1024), trackers = full({2}, 2, kInt32, kCPU),
        counts = full({8}, 3, kInt64, kCPU);
  Array bad_loss, found_inf, first;
  Scaler(bool overflow, bool bad)
      : bad_loss(one(bad ? 1 : 0)),
        found_inf(one(overflow || bad ? 1 : 0)),
        first(full({1}, overflow ? 5 : -1, kInt64, kCPU)) {}
  Scaler there() const {
    Scaler s = *this;
    for (Array* a : {&s.scale, &s.trackers, &s.counts, &s.bad_loss, &s.found_inf, &s.first})
      *a = on_gpu(*a);
    return s;
  }
};

}  // namespace

TEST_CASE("an update that also moves the scale leaves what both leave one after the other") {
  const ScalerLaw law{.growth_interval = 3};
  const auto run = [&] {
    // A launch of few and of many blocks; more than a launch has room for; of several kinds; none.
    for (const int list : {0, 1, 2, 3, 4}) {
      for (const size_t r : {1u, 3u, 10u}) {
        const UpdateRule& rule = kRules[r];
        for (const auto& verdict : {std::pair{false, false}, {true, false}, {false, true}}) {
          const bool overflow = verdict.first, bad = verdict.second;
          std::vector<Kept> kept;
          const auto add = [&](const Shape& shape, Lies lies) {
            kept.emplace_back(shape, kFloat32, kFloat32, kFloat32, Weights::Plain, lies, lies);
          };
          if (list == 0) add({3000}, Lies::Plain), add({7}, Lies::Plain);
          if (list == 1 && r == 3) add({(1 << 21) + 5}, Lies::Plain);
          if (list == 2)
            for (int i = 0; i < 80; ++i) add({i % 5}, Lies::Plain);
          if (list == 3) add({40, 70}, Lies::Plain), add({40, 70}, Lies::Swapped);
          if (list == 4) add({0}, Lies::Plain);
          if (kept.empty()) continue;
          CAPTURE(list);
          CAPTURE(r);
          CAPTURE(overflow);
          CAPTURE(bad);
          const Scaler here(overflow, bad), there = here.there();
          const auto step = [&](Backend& on, const Scaler& s, bool gpu) {
            std::vector<UpdateSlot> slots;
            for (const Kept& k : kept) slots.push_back(k.slot(gpu ? k.there : k.here, rule));
            const ScalerFinding finding{s.found_inf, s.first, 9};
            const StepControl control{s.found_inf, gpu ? on_gpu(one(0.5)) : one(0.5)};
            on.update_and_move_scale(slots, rule, control,
                                     {s.scale, s.trackers, s.counts, {&finding, 1}, s.bad_loss, 0},
                                     law);
          };
          step(cpu_backend(), here, false);
#if defined(HALFTAPE_SIMT)
          simt::reset_counters();
#endif
          step(backend(kCUDA), there, true);
#if defined(HALFTAPE_SIMT)
          if (list == 0 || list == 4) CHECK(simt::launched_kernels().size() == 1);
#endif
          CHECK(differ_on_gpu(there.scale, here.scale) == "");
          CHECK(differ_on_gpu(there.trackers, here.trackers) == "");
          CHECK(differ_on_gpu(there.counts, here.counts) == "");
          CHECK(there.scale.version() == here.scale.version());
          for (const Kept& k : kept)
            for (size_t i = 0; i < k.here.size(); ++i)
              if (k.here[i].defined())
                CHECK(differ_on_gpu(k.there[i], k.here[i], r == 3 ? 1 : 0) == "");
          CHECK(read_double(there.scale) == (bad ? 1024 : overflow ? 512 : 2048));
        }
      }
    }
  };
#if defined(HALFTAPE_SIMT)
  simt::in_every_order(run);
#else
  run();
#endif
}

TEST_CASE("the GPU warns of steps skipped in a row in the CPU's words, at the next call, once") {
  std::vector<std::string> said;
  const WarningFunction before =
      set_warning_handler([&](const std::string& text) { said.push_back(text); });
  const auto skip_on = [&](Device device, bool bad_loss) {
    const auto there = [&](const Array& a) { return device.is_cuda() ? on_gpu(a) : a; };
    const ScalerFinding finding{there(one(1)), there(full({1}, 0, kInt64, kCPU)), 1};
    const Array scale = there(one(1024)), trackers = there(full({2}, 0, kInt32, kCPU)),
                counts = there(full({8}, 0, kInt64, kCPU));
    for (int i = 0; i < 5; ++i)
      backend(device).scaler_update(
          {scale, trackers, counts, {&finding, 1}, bad_loss ? there(one(1)) : Array(), 3}, {});
    backend(device).synchronize();
    backend(device).synchronize();
  };
  for (const bool bad_loss : {false, true}) {
    said.clear();
    skip_on(kCPU, bad_loss);
    skip_on(kCUDA, bad_loss);
    CHECK(said.size() == 2);
    if (said.size() == 2) CHECK(said[1] == said[0]);
  }
  set_warning_handler(before);
}
