// List-wise updates: where an infinity is found, and that a skipped step leaves every byte.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "halftape/core/contract/unfused.h"
#include "halftape/tests/support/arrays.h"
#include "halftape/tests/support/dtypes.h"
#include "halftape/tests/support/nonfinite.h"

using namespace halftape;
using testing::kFloats;
using testing::kInf, testing::kNaN;
using testing::set;

namespace {

Array one(double value) { return full({1}, value, kFloat32, kCPU); }
double at(const Array& a, int64_t i) {
  return read_double(a.reshape({a.numel()}).slice(0, i, i + 1));
}
std::string bytes(const Array& a) {
  return {static_cast<const char*>(a.raw()),
          static_cast<size_t>(a.numel()) * element_size(a.dtype())};
}
bool finds(const std::vector<Array>& grads, double inv_scale) {
  const Array found = one(0);
  cpu_backend().unscale(grads, one(inv_scale), found);
  const double verdict = at(found, 0);
  CHECK((verdict == 0 || verdict == 1));
  return verdict != 0;
}

/// What an optimizer changes, filled with numbers that a stray write would be seen in.
struct State {
  std::vector<Array> arrays;
  Array operator[](size_t i) const { return arrays[i]; }
  State(const Shape& shape, Dtype d, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      arrays.push_back(Array(shape, d, kCPU));
      cpu_backend().random(arrays.back(), Distribution::Uniform, 0.5, 2, {.seed = i, .offset = 0});
    }
    arrays.push_back(one(3));  // the step
  }
  std::string all() const {
    std::string s;
    for (const Array& a : arrays) s += bytes(a);
    return s;
  }
  std::vector<uint64_t> versions() const {
    std::vector<uint64_t> v;
    for (const Array& a : arrays) v.push_back(a.version());
    return v;
  }
};

}  // namespace

TEST_CASE("unscale multiplies every gradient and reports nothing when all are finite") {
  for (const Dtype d : kFloats) {
    CAPTURE(d);
    std::vector<Array> grads;
    for (const int64_t n : {0, 1, 31, 33, 1000, 100003}) grads.push_back(full({n}, 3, d, kCPU));
    grads.push_back(full({}, 3, d, kCPU));
    grads.push_back(full({7, 66}, 3, d, kCPU).slice(1, 0, 66, 2));
    CHECK_FALSE(finds(grads, 0.25));
    for (const Array& g : grads) {
      const Array wide = g.to(kFloat64).to_contiguous();
      int64_t wrong = 0;
      for (int64_t i = 0; i < wide.numel(); ++i) wrong += wide.data<double>()[i] != 0.75;
      CHECK(wrong == 0);
      CHECK(g.version() == 1);
    }
  }
}

TEST_CASE("unscale finds one infinity or NaN in any position of any gradient of any dtype") {
  for (const Dtype d : kFloats) {
    CAPTURE(d);
    for (const double bad : {kInf, -kInf, kNaN}) {
      for (const double inv_scale : {1.0, 0.5, 0x1p-16}) {
        int64_t missed = 0;
        for (const size_t which : {size_t{0}, size_t{2}, size_t{3}}) {
          const std::vector<int64_t> sizes = {1, 0, 70, 17000};
          const int64_t n = sizes[which];
          for (int64_t i = 0; i<n; i += n> 1000 ? 997 : 1) {
            std::vector<Array> grads;
            for (const int64_t size : sizes) grads.push_back(full({size}, 1, d, kCPU));
            set(grads[which], i, bad);
            missed += !finds(grads, inv_scale);
            const double after = at(grads[which], i);
            missed += std::isnan(bad) ? !std::isnan(after) : after != bad;
          }
        }
        CHECK(missed == 0);
      }
    }
  }
}

TEST_CASE("unscale has the same bits in every layout") {
  for (const Dtype d : kFloats) {
    for (const double inv_scale : {1.0, 1 / 3.0, 0x1p-20}) {
      const Array g({6, 70}, d, kCPU), wide({6, 140}, d, kCPU);
      cpu_backend().random(g, Distribution::Normal, 0, 1, {.seed = 3, .offset = 0});
      set(g, 77, kNaN);
      const Array strided = wide.slice(1, 0, 140, 2);
      cpu_backend().copy(strided, g);
      CHECK(finds({g}, inv_scale));
      CHECK(finds({strided}, inv_scale));
      CHECK(bytes(strided.to_contiguous()) == bytes(g));
    }
  }
}

TEST_CASE("a loss of one element is scaled as its steps would, of any dtype") {
  for (const Dtype d : kFloats) {
    for (const Shape& shape : {Shape{}, Shape{1}, Shape{3}}) {
      for (const double loss : {0.7, -3e4, 1e-7, kInf, -kInf, kNaN}) {
        for (const double scale : {1024.0, 1000.0, 1e30}) {
          for (const bool begins : {false, true}) {
            for (const double bad : {0.0, 1.0}) {
              const auto scaling = [&](bool constants) {
                CheckedScale s{.scale = full({}, scale, kFloat32, kCPU),
                               .nonfinite = full({}, bad, kFloat32, kCPU),
                               .begins = begins};
                s.x = full(shape, loss, d, kCPU);
                s.y = full(shape, 5, is_16bit(d) && shape.empty() ? kFloat32 : d, kCPU);
                if (!constants) return s;
                s.factor = full({}, 5, kFloat32, kCPU);
                s.inverse = full({}, 5, kFloat32, kCPU);
                s.found_inf = full({}, 5, kFloat32, kCPU);
                s.first = full({}, 5, kInt64, kCPU);
                return s;
              };
              for (const bool constants : {false, true}) {
                const CheckedScale fused = scaling(constants), reference = scaling(constants);
                cpu_backend().run(fused);
                unfused(cpu_backend(), reference);
                CHECK(bytes(fused.y) == bytes(reference.y));
                CHECK(bytes(fused.nonfinite) == bytes(reference.nonfinite));
                if (!constants) continue;
                CHECK(bytes(fused.factor) == bytes(reference.factor));
                CHECK(bytes(fused.inverse) == bytes(reference.inverse));
                CHECK(bytes(fused.found_inf) == bytes(reference.found_inf));
                CHECK(bytes(fused.first) == bytes(reference.first));
              }
            }
          }
        }
      }
    }
  }
}

TEST_CASE("unscale finds it among gradients of different dtypes, and nothing in an empty list") {
  for (size_t which = 0; which < std::size(kFloats); ++which) {
    std::vector<Array> grads;
    for (const Dtype d : kFloats) grads.push_back(full({2, 3}, 1, d, kCPU));
    CHECK_FALSE(finds(grads, 0.5));
    set(grads[which], 5, kInf);
    CHECK(finds(grads, 0.5));
  }
  CHECK_FALSE(finds({}, 0.5));
  CHECK_FALSE(finds({Array({0}, kFloat16, kCPU), Array({3, 0}, kFloat32, kCPU)}, 0.5));
}

TEST_CASE("unscale notices an overflow that it causes itself") {
  CHECK(finds({full({40}, 60000, kFloat16, kCPU)}, 2));
  CHECK_FALSE(finds({full({40}, 60000, kFloat16, kCPU)}, 1));
  // 32760·2 rounds to infinity in half, but not in float: the rounding is what overflows.
  CHECK(finds({full({1}, 32760, kFloat16, kCPU)}, 2.001));
  CHECK_FALSE(finds({full({1}, 32752, kFloat16, kCPU)}, 2));
  CHECK(finds({full({1}, 3e38, kBFloat16, kCPU)}, 4));
  CHECK(finds({full({1}, 3e38, kFloat32, kCPU)}, 4));
  CHECK_FALSE(finds({full({1}, 3e38, kFloat64, kCPU)}, 4));
  CHECK(finds({full({1}, 1e308, kFloat64, kCPU)}, 4));
  CHECK(finds({full({1}, 1, kFloat32, kCPU)}, kInf));
  CHECK(finds({full({1}, 1, kFloat32, kCPU)}, kNaN));
}

TEST_CASE("a verdict is raised and never taken back") {
  const Array found = one(1);
  const Array g = full({3}, 1, kFloat32, kCPU);
  cpu_backend().unscale(std::span(&g, 1), one(0.5), found);
  CHECK(at(found, 0) == 1);
}

TEST_CASE("a skipped update leaves every byte, whatever the gradient holds, and raises versions") {
  for (const Dtype d : kFloats) {
    CAPTURE(d);
    for (const Shape& shape : {Shape{}, Shape{33}, Shape{130, 130}}) {
      for (const double gradient : {1.0, kInf, kNaN}) {
        const Array g = full(shape, gradient, d, kCPU), found = one(1), inverse = one(0.5);
        const StepControl skip{.found_inf = found, .inv_scale = inverse};
        const State s(shape, d, 5);
        const std::string before = s.all();
        const UpdateSlot all{
            .param = s[0], .grad = g, .moments = {s[1], s[2], s[3]}, .step = s[5], .low = s[4]};
        const UpdateSlot plain{.param = s[0], .grad = g};
        const SgdRule momentum{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1};
        cpu_backend().update({&all, 1}, momentum, skip);
        cpu_backend().update({&plain, 1}, SgdRule{.lr = 0.1}, skip);
        cpu_backend().update({&all, 1},
                             AdamRule{.lr = 0.1,
                                      .beta1 = 0.9,
                                      .beta2 = 0.99,
                                      .eps = 1e-8,
                                      .weight_decay = 0.1,
                                      .decoupled = true,
                                      .amsgrad = true},
                             skip);
        cpu_backend().update(
            {&all, 1}, RmspropRule{.lr = 0.1, .alpha = 0.9, .momentum = 0.9, .centered = true},
            skip);
        cpu_backend().update({&all, 1}, AdagradRule{.lr = 0.1, .lr_decay = 0.5}, skip);
        cpu_backend().update({&all, 1}, LionRule{.lr = 0.1, .beta1 = 0.9, .beta2 = 0.99}, skip);
        CHECK((s.all() == before));  // not printed: bytes
        // As on a device that alone knows whether it skips.
        CHECK(s.versions() == std::vector<uint64_t>{6, 5, 5, 5, 5, 5});
        // The same calls with a verdict of 0 change all of it, so the above could have failed.
        const StepControl go{.found_inf = one(0), .inv_scale = inverse};
        cpu_backend().update({&all, 1}, momentum, go);
        CHECK((bytes(s[0]) + bytes(s[1]) != before.substr(0, 2 * bytes(s[0]).size())));
        CHECK(s.versions() == std::vector<uint64_t>{7, 6, 6, 6, 6, 6});
        CHECK(at(s[5], 0) == 4);
      }
    }
  }
}

TEST_CASE("updates follow their formulas, and inv_scale divides the gradient as it is read") {
  const Array p = full({40}, 1, kFloat64, kCPU), g = full({40}, 8, kFloat64, kCPU);
  const Array v = full({40}, 0, kFloat64, kCPU), steps = one(0);
  const StepControl control{.found_inf = one(0), .inv_scale = one(0.25)};  // the gradient is 2
  const UpdateSlot slot{.param = p, .grad = g, .moments = {v}, .step = steps};
  const SgdRule sgd{.lr = 0.5, .momentum = 0.5, .dampening = 0.25};
  cpu_backend().update({&slot, 1}, sgd, control);  // the first step takes v = g: 1 − 0.5·2
  CHECK(at(v, 39) == 2);
  CHECK(at(p, 39) == 0);
  cpu_backend().update({&slot, 1}, sgd, control);  // v = 0.5·2 + 0.75·2, p = 0 − 0.5·2.5
  CHECK(at(v, 0) == 2.5);
  CHECK(at(p, 0) == -1.25);
  CHECK(at(steps, 0) == 2);
  CHECK(at(g, 0) == 8);  // the gradient itself stays scaled
  // Adam's first step is lr·sign(g), its second moment (1 − β2)·g².
  const Array q = full({40}, 1, kFloat64, kCPU), m = full({40}, 0, kFloat64, kCPU), t = one(0);
  cpu_backend().fill(v, 0);
  const UpdateSlot adam{.param = q, .grad = g, .moments = {m, v}, .step = t};
  cpu_backend().update({&adam, 1}, AdamRule{.lr = 0.125, .beta1 = 0.5, .beta2 = 0.75}, control);
  CHECK(at(q, 39) == 0.875);
  CHECK(at(m, 39) == 1);
  CHECK(at(v, 39) == 1);
  CHECK(at(t, 0) == 1);
}

TEST_CASE("an update has the same bits in every layout") {
  for (const Dtype d : {kFloat32, kFloat64}) {
    const auto drawn = [&](uint64_t seed) {
      const Array a({6, 70}, d, kCPU);
      cpu_backend().random(a, Distribution::Normal, 0, 1, {.seed = seed, .offset = 0});
      return a;
    };
    const auto spread = [&](const Array& a) {  // every second element of twice as many
      const Array wide = full({6, 140}, 9, d, kCPU), strided = wide.slice(1, 0, 140, 2);
      cpu_backend().copy(strided, a);
      return strided;
    };
    const Array p = drawn(1), g = drawn(2), v = drawn(3);
    const UpdateSlot plain{.param = p, .grad = g, .moments = {v}, .step = one(1)};
    const UpdateSlot strided{
        .param = spread(p), .grad = spread(g), .moments = {spread(v)}, .step = one(1)};
    const SgdRule sgd{.lr = 0.3, .momentum = 0.7};
    cpu_backend().update({&plain, 1}, sgd, {});
    cpu_backend().update({&strided, 1}, sgd, {});
    CHECK(bytes(strided.param.to_contiguous()) == bytes(p));
    CHECK(bytes(strided.moments[0].to_contiguous()) == bytes(v));
    CHECK(bytes(p) != bytes(drawn(1)));
  }
}

TEST_CASE("an update writes the 16-bit copy as a cast of the new parameter would") {
  for (const Dtype low : {kFloat16, kBFloat16}) {
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{45}, Shape{130, 131}}) {
      CAPTURE(low);
      const Array p(shape, kFloat32, kCPU), g(shape, kFloat32, kCPU),
          copy = full(shape, 7, low, kCPU);
      cpu_backend().random(p, Distribution::Uniform, -1e5, 1e5, {.seed = 1, .offset = 0});
      cpu_backend().random(g, Distribution::Uniform, -1e5, 1e5, {.seed = 2, .offset = 0});
      if (p.numel() > 44) {  // overflows, subnormals and what is no number
        for (const auto& [i, x] : {std::pair{0, kInf}, {31, kNaN}, {32, 1e-6}, {44, -3e38}})
          set(p, i, x), set(g, i, 0);
      }
      const UpdateSlot slot{.param = p, .grad = g, .low = copy};
      for (int step = 0; step < 2; ++step) {
        cpu_backend().update({&slot, 1}, SgdRule{.lr = 0.25}, {});
        CHECK((bytes(copy) == bytes(p.to(low))));  // not printed: bytes
      }
      CHECK(copy.version() == 2);
      // Of another layout than the parameter.
      if (shape.size() < 2) continue;
      const Array turned = Array({131, 130}, low, kCPU).transpose(0, 1);
      const UpdateSlot other{.param = p, .grad = g, .low = turned};
      cpu_backend().update({&other, 1}, SgdRule{.lr = 0.25}, {});
      CHECK((bytes(turned.to_contiguous()) == bytes(p.to(low))));
    }
  }
}

TEST_CASE("transition() is next() and counted() on arrays, over all results") {
  // Per optimizer: is a gradient not finite? By sums, "not zero" must do: 2 is a verdict, too.
  const std::vector<std::vector<double>> findings = {{0}, {1}, {0, 0}, {0, 2}, {kNaN, 0}};
  for (const int64_t hysteresis : {1, 2}) {
    for (const auto& found : findings) {
      for (const double bad_loss : {0.0, 1.0}) {
        const ScaleLaw law{.growth_interval = 4, .hysteresis = hysteresis};
        const Array scale = one(1024), trackers = full({2}, 0, kInt32, kCPU),
                    counts = full({8}, 0, kInt64, kCPU);
        set(trackers, 0, 3);
        std::vector<CheckResult> list;
        for (const double f : found)
          list.push_back({one(f), full({1}, 40, kInt64, kCPU), static_cast<int64_t>(list.size())});
        cpu_backend().transition({scale, trackers, counts, list, one(bad_loss), 0, law});
        const bool any = found[0] != 0 || (found.size() > 1 && found[1] != 0);
        const Verdict verdict = bad_loss != 0 ? Verdict::BadLoss
                                : any         ? Verdict::Overflow
                                              : Verdict::Finite;
        const ScaleState expected = next(ScaleState{1024, 3}, verdict, law);
        CHECK(at(scale, 0) == expected.scale);
        CHECK(at(trackers, 0) == expected.growth_tracker);
        CHECK(at(trackers, 1) == expected.overflows);
        CHECK(scale.version() == 1);
        CHECK(at(counts, 0) == 1);
        CHECK(at(counts, 1) == (verdict != Verdict::Finite));
        CHECK(at(counts, 3) == (verdict == Verdict::BadLoss));
        CHECK(at(counts, 4) == (expected.scale > 1024));
        CHECK(at(counts, 5) == (expected.scale < 1024));
        CHECK(at(counts, 6) == (any && found[0] == 0 ? 1 : 0));
        CHECK(at(counts, 7) == (any ? 40 : 0));
      }
    }
  }
}

TEST_CASE("unscale names the first gradient that is not finite and still divides the others") {
  for (const Dtype d : kFloats) {
    std::vector<Array> grads;
    for (int i = 0; i < 5; ++i) grads.push_back(full({3}, 4, d, kCPU));
    grads[1] = {};  // a parameter without a gradient keeps its place in the count
    set(grads[2], 1, kNaN);
    set(grads[4], 0, kInf);
    const Array found = one(0), first = full({1}, -1, kInt64, kCPU);
    cpu_backend().unscale(grads, one(0.5), found, first);
    CHECK(at(found, 0) == 1);
    CHECK(read_int64(first) == 2);
    for (const int i : {0, 2, 3, 4}) CHECK(at(grads[static_cast<size_t>(i)], 2) == 2);
  }
}

TEST_CASE("check_finite looks and leaves everything as it is") {
  for (const Dtype d : kFloats) {
    const std::vector<Array> xs = {full({40}, 3, d, kCPU), Array(),
                                   full({2, 5}, 3, d, kCPU).transpose(0, 1)};
    const Array found = one(0);
    cpu_backend().check_finite(xs, found);
    CHECK(at(found, 0) == 0);
    for (const double bad : {kInf, -kInf, kNaN}) {
      for (const int64_t i : {0, 32, 39}) {
        const std::vector<Array> ys = {xs[2], full({40}, 3, d, kCPU)};
        set(ys[1], i, bad);
        const Array verdict = one(0);
        const auto version = ys[1].version();
        cpu_backend().check_finite(ys, verdict);
        CHECK(at(verdict, 0) == 1);
        CHECK(ys[1].version() == version);
      }
    }
  }
}

TEST_CASE("check_finite looks at what a division would give, and tells where") {
  for (const Dtype d : kFloats) {
    std::vector<Array> xs = {full({3}, 1, d, kCPU), Array(), full({40}, 1024, d, kCPU)};
    const Array found = one(0), first = full({1}, -1, kInt64, kCPU);
    cpu_backend().check_finite(xs, found, one(0x1p100), first);
    CHECK(at(found, 0) == 0);
    CHECK(read_int64(first) == -1);
    cpu_backend().check_finite(xs, found, one(0x1p120), first);
    CHECK(at(found, 0) == (d == kFloat64 ? 0 : 1));
    CHECK(read_int64(first) == (d == kFloat64 ? -1 : 2));
    CHECK(at(xs[2], 39) == 1024);
  }
}
