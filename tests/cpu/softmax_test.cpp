// Softmax along rows: its values, its gradient, and rows that overflow a careless one.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "halftape/core/contract/backend.h"
#include "halftape/tests/support/arrays.h"
#include "halftape/tests/support/dtypes.h"
#include "halftape/tests/support/nonfinite.h"

using namespace halftape;
using testing::kFloats;
using testing::kInf, testing::kNaN;
using testing::normal, testing::values;

namespace {

using Row = std::vector<double>;

Array row(const Row& v, Dtype dtype) {
  const Array a({1, static_cast<int64_t>(v.size())}, kFloat64, kCPU);
  std::copy(v.begin(), v.end(), a.data<double>());
  return a.to(dtype);
}
Row softmax(const Array& x, bool log, Dtype to) {
  const Array y(x.shape(), to, kCPU);
  cpu_backend().softmax(y, x, log);
  return values(y);
}
Row softmax(const Row& x, bool log, Dtype dtype) { return softmax(row(x, dtype), log, dtype); }

/// From the definition, in long double.
Row expected(const Row& x, bool log) {
  long double top = -kInf, total = 0;
  for (const double v : x) top = std::max<long double>(top, v);
  for (const double v : x) total += std::exp(v - top);
  Row y;
  for (const double v : x)
    y.push_back(static_cast<double>(log ? v - top - std::log(total) : std::exp(v - top) / total));
  return y;
}
Row random(int64_t n, Dtype dtype, double spread, uint64_t seed = 1) {
  return values(normal({n}, dtype, seed, spread));
}
bool all_nan(const Row& y) {
  for (const double v : y)
    if (!std::isnan(v)) return false;
  return !y.empty();
}

/// Everything is computed in float32 at least: so much of the value, or of one for logarithms …
double inner(Dtype d) { return 16 * (d == kFloat64 ? epsilon(kFloat64) : epsilon(kFloat32)); }
/// … and rounded once: half the distance of neighbours, at least that of the smallest numbers.
double rounding(Dtype d, double value) {
  const double least = d == kFloat16 ? 0x1p-25 : d == kBFloat16 ? 0x1p-134 : 0x1p-150;
  return value == 0 ? least : std::max(std::ldexp(epsilon(d), std::ilogb(value)) / 2, least);
}

}  // namespace

TEST_CASE("a softmax may be written over what it is made from") {
  for (const int64_t length : {32, 64, 33, 7}) {  // of whole chunks, and not
    for (const bool log : {false, true}) {
      const Array x({5, length}, kFloat32, kCPU);
      cpu_backend().random(x, Distribution::Normal, 0, 3, {.seed = 2, .offset = 0});
      const Row separate = softmax(x, log, kFloat32);
      cpu_backend().softmax(x, x, log);
      CHECK(values(x) == separate);
      const Array y = x.clone(), g = empty_like(x), dx = empty_like(x);
      cpu_backend().random(g, Distribution::Normal, 0, 1, {.seed = 3, .offset = 0});
      cpu_backend().softmax_grad(dx, g, y, log);
      cpu_backend().softmax_grad(g, g, y, log);
      CHECK(values(g) == values(dx));
    }
  }
}

TEST_CASE("softmax and log_softmax agree with their definition at every length") {
  for (const Dtype d : kFloats) {
    CAPTURE(d);
    for (const int64_t n : {1, 7, 31, 32, 33, 1000, 20011}) {
      CAPTURE(n);
      const Row x = random(n, d, 3);
      for (const bool log : {false, true}) {
        const Row got = softmax(x, log, d), exact = expected(x, log);
        double worst = 0;
        for (size_t i = 0; i < x.size(); ++i) {
          const double e = std::abs(exact[i]);
          const double bound = inner(d) * (log ? 1 + e + std::abs(x[i]) : e) + rounding(d, e);
          worst = std::max(worst, std::abs(got[i] - exact[i]) / bound);
        }
        CHECK(worst <= 1);
      }
    }
  }
}

TEST_CASE("a float32 result of half inputs is not rounded to half") {
  const Array x = row(random(100, kFloat16, 3), kFloat16);
  const Row got = softmax(x, false, kFloat32), exact = expected(values(x), false);
  for (size_t i = 0; i < got.size(); ++i)
    CHECK(std::abs(got[i] - exact[i]) <= 16 * epsilon(kFloat32) * exact[i]);
}

TEST_CASE("equal values share the whole, to the last bit where it divides evenly") {
  for (const Dtype d : kFloats) {
    for (const double v : {0.0, 1000.0, -60000.0, 65504.0}) {
      CHECK(softmax(Row(8, v), false, d) == Row(8, 0.125));
      CHECK(softmax(Row(1, v), false, d) == Row(1, 1));
      CHECK(softmax(Row(1, v), true, d) == Row(1, 0));
    }
    for (const double v : softmax(Row(1000, 7), false, kFloat64))
      REQUIRE(std::abs(v - 0.001) < 1e-17);
  }
}

TEST_CASE("large values do not overflow, and a far smaller one has no share") {
  for (const Dtype d : kFloats) {
    CAPTURE(d);
    CHECK(softmax({60000, 0, -60000}, false, d) == Row{1, 0, 0});
    CHECK(softmax({-60000, -60000}, false, d) == Row{0.5, 0.5});
    const Row top = row({30000}, d).numel() ? values(row({30000}, d)) : Row{};
    CHECK(softmax({30000, 0, 0}, true, d) == Row{0, -top[0], -top[0]});
  }
  for (const Dtype d : {kBFloat16, kFloat32, kFloat64})
    CHECK(softmax({1e38, -1e38, 1e38}, false, d) == Row{0.5, 0, 0.5});
}

TEST_CASE("minus infinity masks an element and the rest is as without it") {
  for (const Dtype d : kFloats) {
    CAPTURE(d);
    for (const int64_t n : {2, 33, 100}) {
      Row x = random(n, d, 2);
      Row masked = x;
      masked.insert(masked.begin() + n / 2, -kInf);
      const Row y = softmax(masked, false, d), z = softmax(masked, true, d);
      CHECK(y[static_cast<size_t>(n / 2)] == 0);
      CHECK(z[static_cast<size_t>(n / 2)] == -kInf);
      const Row plain = softmax(x, false, d);
      double sum = 0;
      for (size_t i = 0; i < y.size(); ++i) {
        if (i == static_cast<size_t>(n / 2)) continue;
        const double other = plain[i < static_cast<size_t>(n / 2) ? i : i - 1];
        CHECK(std::abs(y[i] - other) <= inner(d) * other + 2 * rounding(d, other));
        sum += y[i];
      }
      CHECK(std::abs(sum - 1) <= static_cast<double>(n) * rounding(d, 1));
    }
  }
}

TEST_CASE("a row of nothing but minus infinity, or with an infinity or NaN, is NaN throughout") {
  for (const Dtype d : kFloats) {
    for (const bool log : {false, true}) {
      for (const size_t n : {size_t{1}, size_t{3}, size_t{32}, size_t{33}}) {
        CHECK(all_nan(softmax(Row(n, -kInf), log, d)));
        for (const size_t at : {size_t{0}, n / 2, n - 1}) {
          Row x(n, 1);
          x[at] = kNaN;
          CHECK(all_nan(softmax(x, log, d)));
        }
      }
    }
    CHECK(all_nan(softmax({1, kInf, kInf}, false, d)));
  }
}

TEST_CASE("a spoilt row leaves its neighbours alone, and empty ones do nothing") {
  const Array x = full({3, 40}, 2, kFloat32, kCPU);
  cpu_backend().fill(x.select(0, 1), -kInf);
  const Row y = softmax(x, false, kFloat32);
  for (size_t i = 0; i < 120; ++i) CHECK((i / 40 == 1 ? std::isnan(y[i]) : y[i] == 0.025f));
  CHECK(softmax(Array({0, 5}, kFloat32, kCPU), false, kFloat32).empty());
  CHECK(softmax(Array({5, 0}, kFloat32, kCPU), true, kFloat32).empty());
  CHECK(softmax(full({}, 3, kFloat16, kCPU), false, kFloat16) == Row{1});
}

TEST_CASE("the gradients are y (g - sum g y) and g - e^y sum g") {
  for (const Dtype d : kFloats) {
    CAPTURE(d);
    for (const int64_t n : {1, 31, 33, 1000}) {
      CAPTURE(n);
      for (const bool log : {false, true}) {
        const Array y = row(softmax(random(n, d, 1), log, d), d), g = row(random(n, d, 1, 2), d);
        const Array dx(y.shape(), d, kCPU);
        cpu_backend().softmax_grad(dx, g, y, log);
        const Row got = values(dx), v = values(y), w = values(g);
        long double total = 0, size = 0;
        for (size_t i = 0; i < v.size(); ++i)
          total += log ? w[i] : w[i] * v[i], size += std::abs(log ? w[i] : w[i] * v[i]);
        double worst = 0;
        for (size_t i = 0; i < v.size(); ++i) {
          const long double e =
              log ? w[i] - std::exp(static_cast<long double>(v[i])) * total : v[i] * (w[i] - total);
          const auto exact = static_cast<double>(e);
          const double factor = log ? std::exp(v[i]) : v[i];
          const double bound = inner(d) * (factor * (std::abs(w[i]) + static_cast<double>(size)) +
                                           (log ? std::abs(w[i]) : 0)) +
                               rounding(d, exact);
          worst = std::max(worst, std::abs(got[i] - exact) / bound);
        }
        CHECK(worst <= 1);
      }
    }
  }
}
