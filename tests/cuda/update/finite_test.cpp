// Gradients are checked and divided on the GPU as on the CPU: verdicts, bits and positions.
#include <doctest/doctest.h>

#include <string>

#include <halftape/halftape.h>

#include "updates.h"

using namespace halftape;
using namespace halftape::testing;
using namespace halftape::testing::updates;

namespace {

/// Checks the same list on both devices by both calls; returns the first difference.
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

TEST_CASE("the GPU checks and divides gradients of every size, dtype and layout as the CPU does") {
  for (const bool divide : {false, true}) {
    for (const double inverse : {1.0, 0.25, 3e-39, 7e9, kInf}) {
      CAPTURE(divide);
      CAPTURE(inverse);
      std::vector<Array> xs = {Array(), Array({0}, kFloat16, kCPU)};
      uint64_t seed = 0;
      for (const Dtype d : kFloats) {
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
    for (const Dtype d : kFloats) {
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

TEST_CASE("lists longer than a launch has room for are checked and updated to their end") {
  std::vector<Array> xs;
  for (uint64_t i = 0; i < 500; ++i)
    xs.push_back(draw({5, static_cast<int64_t>(i % 7)}, kFloats[i % 4], kWays[i / 4 % 4], i));
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

TEST_CASE("the GPU counts numbers by powers of two as the CPU does") {
  for (const Dtype dtype : {kFloat16, kBFloat16, kFloat32, kFloat64})
    for (const int64_t n : {0, 1, 70001}) {
      const Tensor x = (randn({n}) * 0x1p-14).to(dtype);
      CHECK(amp::count_exponents(x.to(kCUDA)) == amp::count_exponents(x));
    }
}
