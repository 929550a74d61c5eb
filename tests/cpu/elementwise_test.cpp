// Copies and element-wise kernels: one conversion and one rounding per element, exact integers, and
// NaN passes.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "halftape/core/contract/backend.h"
#include "halftape/core/formula/binary.h"
#include "halftape/core/formula/unary.h"
#include "halftape/tests/support/arrays.h"
#include "halftape/tests/support/nonfinite.h"

using namespace halftape;
using testing::array_of, testing::values;
using testing::kInf, testing::kNaN;

namespace {

using Values = std::vector<double>;

template <class Op>
Array unary(const Array& x, const Params<Scalar>& p = {}) {
  Array y(x.shape(), x.dtype(), kCPU);
  cpu_backend().unary(UnaryOps::index<Op>(), y, x, p);
  return y;
}
template <class Op>
Array binary(const Array& a, const Array& b, Dtype to) {
  Array y(a.shape(), to, kCPU);
  cpu_backend().binary(BinaryOps::index<Op>(), y, a, b);
  return y;
}
/// Numbers that conversions find hard: out of range, between, subnormal, not a number.
const Values hard = {0,     -0.0,   1,       -1,      0.5,       -1.5,       255.5,
                     300,   2049,   65519,   65520,   -65520,    16777217,   2147483647.5,
                     -3e9,  9.3e18, -1e19,   1e300,   -1e300,    0x1p-25,    0x1.004p-24,
                     1e-40, 5e-324, 1.00049, 1.00391, 3.403e38,  kInf,       -kInf,
                     kNaN,  0.1,    127,     128,     -0x1p-133, 0x1.8p-134, 33.3};

}  // namespace

TEST_CASE("a copy between any two dtypes is convert() of every element") {
  Values more = hard;  // whole blocks, whole chunks and a rest, contiguous and not
  while (more.size() < 1100) more.push_back(hard[more.size() % hard.size()] / 3);
  for (const Dtype from :
       {kBool, kUInt8, kInt8, kInt16, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64}) {
    for (const Dtype to :
         {kBool, kUInt8, kInt8, kInt16, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64}) {
      CAPTURE(from);
      CAPTURE(to);
      visit(from, [&](auto f) {
        visit(to, [&](auto t) {
          using From = typename decltype(f)::type;
          using To = typename decltype(t)::type;
          const Array x({static_cast<int64_t>(more.size())}, from, kCPU);
          for (size_t i = 0; i < more.size(); ++i) x.data<From>()[i] = convert<From>(more[i]);
          const Array y = x.to(to), wide({x.numel(), 2}, to, kCPU);
          cpu_backend().copy(wide.select(1, 1), x);
          const Array apart({x.numel(), 2}, from, kCPU);
          cpu_backend().copy(apart.select(1, 1), x);
          const Array closed = apart.select(1, 1).to(to).to_contiguous();
          const Array longer = full({x.numel() + 40}, 1, to, kCPU);
          cpu_backend().copy(longer.slice(0, 0, 37), x.slice(0, 0, 37));
          int64_t wrong = 0;
          for (int64_t i = 0; i < longer.numel(); ++i) {  // and no further
            const To expected = i < 37 ? y.data<To>()[i] : convert<To>(1);
            wrong += std::memcmp(&longer.data<To>()[i], &expected, sizeof(To)) != 0;
          }
          for (int64_t i = 0; i < x.numel(); ++i) {
            const To expected = convert<To>(x.data<From>()[i]);
            wrong += std::memcmp(&y.data<To>()[i], &expected, sizeof(To)) != 0;
            wrong += std::memcmp(&wide.data<To>()[2 * i + 1], &expected, sizeof(To)) != 0;
            wrong += std::memcmp(&closed.data<To>()[i], &expected, sizeof(To)) != 0;
          }
          CHECK(wrong == 0);
        });
      });
    }
  }
}

TEST_CASE("runs of halves of every length convert as their elements do, and no further") {
  constexpr int64_t kBeyond = 40;
  int64_t wrong = 0;
  for (int64_t n = 1; n <= 100; ++n) {
    const Array x({n}, kFloat16, kCPU);
    for (int64_t i = 0; i < n; ++i)
      x.data<Half>()[i].bits = static_cast<uint16_t>(i * 977 % 0x7c00 + (i % 2) * 0x8000);
    for (int64_t place = 0; place < n; ++place) {
      const Half before = x.data<Half>()[place];
      x.data<Half>()[place].bits = 0x7d01;  // a signalling NaN
      const Array y = full({n + kBeyond}, 7, kFloat32, kCPU),
                  z = full({n + kBeyond}, 7, kFloat16, kCPU);
      cpu_backend().copy(y.slice(0, 0, n), x);
      cpu_backend().copy(z.slice(0, 0, n), y.slice(0, 0, n));
      for (int64_t i = 0; i < n + kBeyond; ++i) {
        const float wide = i < n ? convert<float>(x.data<Half>()[i]) : 7;
        const Half low = convert<Half>(wide);
        wrong += std::memcmp(&y.data<float>()[i], &wide, sizeof wide) != 0;
        wrong += std::memcmp(&z.data<Half>()[i], &low, sizeof low) != 0;
      }
      x.data<Half>()[place] = before;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("arithmetic on halves is exact and then rounded once", T, Half, BFloat16) {
  // Rounding to 53 bits first (as here) or to 24 (as the kernel) changes nothing for numbers of 11
  // and 8 bits: p >= 2q + 2, Figueroa 1995. Except where float itself is subnormal.
  std::vector<T> a, b;
  for (uint32_t i = 0; i < 200000; ++i) {
    a.push_back(T::from_bits(static_cast<uint16_t>(i * 40503u >> 3)));
    b.push_back(T::from_bits(static_cast<uint16_t>(i * 2654435761u >> 11)));
  }
  const Array x = array_of(a), y = array_of(b);
  const Dtype d = dtype_of<T>;
  const Array sum = binary<formula::Add>(x, y, d), difference = binary<formula::Sub>(x, y, d),
              product = binary<formula::Mul>(x, y, d), quotient = binary<formula::Div>(x, y, d);
  int64_t wrong = 0;
  auto check = [&](T got, double exact) {
    const T expected(exact);
    wrong += std::isnan(exact) ? !std::isnan(static_cast<float>(got)) : got.bits != expected.bits;
  };
  auto tiny = [](double v) { return v != 0 && std::abs(v) < 0x1p-126; };
  for (size_t i = 0; i < a.size(); ++i) {
    const auto p = static_cast<double>(a[i]), q = static_cast<double>(b[i]);
    check(sum.data<T>()[i], p + q);
    check(difference.data<T>()[i], p - q);
    if (!tiny(p * q)) check(product.data<T>()[i], p * q);
    if (!tiny(p / q)) check(quotient.data<T>()[i], p / q);
  }
  CHECK(wrong == 0);
}

TEST_CASE("several steps inside one kernel are not rounded to half in between") {
  // 300² leaves half's range; 300²·2⁻¹⁰ in one kernel does not.
  const Array x = array_of<Half>({Half(300.0)});
  CHECK(values(unary<formula::Square>(x)) == Values{kInf});
  CHECK(values(unary<formula::Affine>(x, {.a = 1000, .b = -299000})) == Values{1000});
  // 2048 + 1 is 2048 in half, so that the second step shows.
  CHECK(values(unary<formula::Affine>(array_of<Half>({Half(1.0)}), {.a = 2049, .b = -2048})) ==
        Values{1});
}

TEST_CASE("kernels of mixed dtypes compute in the wider and round to the result's") {
  const Array a = array_of<Half>({Half(1.0)}), b = array_of<float>({0x1p-20f}),
              c = array_of<double>({0x1p-40});
  CHECK(values(binary<formula::Add>(a, b, kFloat32)) == Values{1 + 0x1p-20});
  CHECK(values(binary<formula::Add>(a, c, kFloat64)) == Values{1 + 0x1p-40});
  CHECK(values(binary<formula::Mul>(array_of<int64_t>({3}), b, kFloat32)) == Values{3 * 0x1p-20});
  CHECK(values(binary<formula::Div>(array_of<int32_t>({7}), array_of<int32_t>({2}), kFloat32)) ==
        Values{3.5});
}

TEST_CASE("64-bit integers are added, multiplied and compared exactly") {
  constexpr int64_t big = int64_t{1} << 53;
  const Array a = array_of<int64_t>({big, -big}), b = array_of<int64_t>({big + 1, -big - 1});
  CHECK(binary<formula::Sub>(b, a, kInt64).data<int64_t>()[0] == 1);
  CHECK(binary<formula::Add>(a, array_of<int64_t>({1, 1}), kInt64).data<int64_t>()[0] == big + 1);
  CHECK(binary<formula::Mul>(b, array_of<int64_t>({3, 3}), kInt64).data<int64_t>()[1] ==
        -3 * big - 3);
  CHECK(values(binary<formula::Lt>(a, b, kBool)) == Values{1, 0});
  CHECK(values(binary<formula::Eq>(a, b, kBool)) == Values{0, 0});
  CHECK(binary<formula::Maximum>(a, b, kInt64).data<int64_t>()[0] == big + 1);
  CHECK(unary<formula::Neg>(b).data<int64_t>()[0] == -big - 1);
  CHECK(unary<formula::Affine>(b, {.a = 1, .b = 1}).data<int64_t>()[0] == big + 2);
  CHECK(values(binary<formula::Add>(array_of<uint8_t>({200}), array_of<uint8_t>({100}), kUInt8)) ==
        Values{44});
}

TEST_CASE("NaN passes through every rectifier, maximum and clamp, and compares unequal") {
  for (const Dtype d : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
    const Array x = array_of<double>({kNaN, -1, 3, kInf, -kInf}).to(d);
    const Array one = full({5}, 1, d, kCPU), nan = full({5}, kNaN, d, kCPU);
    for (const Array& y : {unary<formula::Relu>(x), unary<formula::Clamp>(x, {.a = 0, .b = 2}),
                           unary<formula::Sign>(x), binary<formula::Maximum>(x, one, d),
                           binary<formula::Maximum>(one, x, d), binary<formula::Minimum>(x, one, d),
                           binary<formula::Minimum>(one, x, d)}) {
      CHECK(std::isnan(values(y)[0]));
      CHECK_FALSE(std::isnan(values(y)[1]));
    }
    CHECK(values(unary<formula::Relu>(x))[3] == kInf);
    for (const double v : values(binary<formula::Maximum>(nan, one, d))) CHECK(std::isnan(v));
    CHECK(values(binary<formula::Eq>(nan, nan, kBool)) == Values(5, 0));
    CHECK(values(binary<formula::Ne>(nan, nan, kBool)) == Values(5, 1));
    CHECK(values(binary<formula::Le>(x, one, kBool)) == Values{0, 1, 0, 0, 1});
    const Array y(x.shape(), d, kCPU), c = array_of<int32_t>({1, 0, 1, 0, 1}).to(kBool);
    cpu_backend().where(y, c, one, nan);  // what is not chosen does not matter
    CHECK(values(y)[0] == 1);
    CHECK(values(y)[2] == 1);
    CHECK(std::isnan(values(y)[1]));
  }
}

/// The largest error in units of the last place of float32; infinite where only one of them is
/// finite, or where an element depends on its neighbours.
template <class Op>
double worst_ulps(const std::vector<float>& all, double (*exact_of)(double)) {
  const Array x = array_of(all), y = unary<Op>(x);
  double worst = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const Array one = unary<Op>(array_of<float>({all[i]}));
    const float got = y.data<float>()[i], alone = one.data<float>()[0];
    if (std::memcmp(&got, &alone, sizeof got) != 0) return kInf;
    const double exact = exact_of(all[i]);
    const auto nearest = static_cast<float>(exact);
    if (std::isnan(exact) ? std::isnan(got) : got == nearest) continue;
    if (!std::isfinite(got) || !std::isfinite(nearest)) return kInf;
    const int exponent = exact == 0 ? -126 : std::max(std::ilogb(exact), -126);
    worst = std::max(worst, std::abs(got - exact) * std::ldexp(1.0, 23 - exponent));
  }
  return worst;
}

TEST_CASE("functions worked out by a table are as exact as stated, whatever their neighbours") {
  const float inf = std::numeric_limits<float>::infinity();
  // Where another formula begins, and where results overflow, are subnormal or vanish; parts of
  // the tables, and about 1, where a logarithm is small.
  std::vector<float> all;
  for (int i = -3000; i < 3000; ++i) all.push_back(static_cast<float>(i) * 0.0067f);
  std::vector<float> ends = {88,     89,    100,   104, 200, 1e30f,     inf,          0x1p-126f,
                             1e-40f, 1e-9f, 3e-4f, 0,   80,  79.99999f, std::nanf("")};
  for (const float end :
       {10.f,      16.f,         70.f,        87.3f,      88.f,       1.f,       0x1p-126f,
        0x1.04p0f, 0x1.f6p-1f,   0x1.66p-1f,  0x1.66p0f,  0.0216608f, 0x1p-100f, 0.126953125f,
        3.933f,    0.098174770f, 1608.f,      355.f,      1254.0677f, 0x1p19f,   0.125f,
        0.25f,     0.375f,       0.625f,      0.875f,     1.125f,     1.375f,    1.875f,
        2.375f,    2.875f,       3.375f,      4.375f,     5.375f,     6.375f,    7.375f,
        9.3f,      0x1.668p-1f,  0x1.f68p-1f, 0x1.068p0f, 0x1.668p0f})
    for (const float x : {std::nextafter(end, 0.f), end, std::nextafter(end, inf)})
      ends.push_back(x);
  for (size_t i = 0; i < ends.size(); ++i) all[i * 40] = ends[i], all[i * 40 + 20] = -ends[i];
  all[1] = -0x1.00127p-1f;  // whose sigmoid in double is another float
  CHECK(worst_ulps<formula::Exp>(all, [](double x) { return std::exp(x); }) < 0.54);
  CHECK(worst_ulps<formula::Log>(all, [](double x) { return std::log(x); }) < 0.57);
  CHECK(worst_ulps<formula::Tanh>(all, [](double x) { return std::tanh(x); }) < 0.6);
  CHECK(worst_ulps<formula::Sin>(all, [](double x) { return std::sin(x); }) < 0.53);
  CHECK(worst_ulps<formula::Cos>(all, [](double x) { return std::cos(x); }) < 0.53);
  CHECK(worst_ulps<formula::Erf>(all, [](double x) { return std::erf(x); }) < 0.53);
  CHECK(worst_ulps<formula::Sigmoid>(all, [](double x) { return 1 / (1 + std::exp(-x)); }) < 0.502);
}
