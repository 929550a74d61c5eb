// Matrix products: accumulated in float32 (float64), rounded once, with bias, alpha and beta.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "halftape/core/contract/backend.h"
#include "halftape/core/machine/cpu_capability.h"
#include "halftape/core/machine/threads.h"
#include "halftape/tests/support/arrays.h"
#include "halftape/tests/support/native_bfloat16.h"
#include "halftape/tests/support/nonfinite.h"

using namespace halftape;
using testing::kInf, testing::kNaN;
using testing::laid_out, testing::normal, testing::values;

namespace {

Array filled(const Shape& shape, double value, Dtype dtype) {
  return full(shape, value, dtype, kCPU);
}
bool all_are(const Array& a, double value) {
  for (const double v : values(a))
    if (v != value) return false;
  return true;
}

/// The largest |got − exact| in units of its bound. Of the k products and the sum of them in
/// precision `inner`: (k + 1)·eps·Σ|a||b|; of the result: half a unit in its last place.
double worst(const Array& d, const Array& a, const Array& b, Dtype inner) {
  const int64_t m = d.size(0), n = d.size(1), k = a.size(1);
  const auto x = values(a), y = values(b), got = values(d);
  double out = 0;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      long double exact = 0, size = 0;
      for (int64_t l = 0; l < k; ++l) {
        const long double p = static_cast<long double>(x[static_cast<size_t>(i * k + l)]) *
                              static_cast<long double>(y[static_cast<size_t>(l * n + j)]);
        exact += p, size += std::abs(p);
      }
      const auto sum_error =
          static_cast<double>(size) * static_cast<double>(k + 1) * epsilon(inner);
      const double result = std::abs(static_cast<double>(exact)) + sum_error;
      const double bound = sum_error / 2 + std::ldexp(epsilon(d.dtype()), std::ilogb(result)) / 2;
      const auto error = static_cast<double>(
          std::abs(static_cast<long double>(got[static_cast<size_t>(i * n + j)]) - exact));
      out = std::max(out, error / bound);
    }
  }
  return out;
}

}  // namespace

TEST_CASE("4096 ones in half sum to exactly 4096, where a half accumulator would stop at 2048") {
  for (const Dtype d : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
    for (const Shape& s :
         {Shape{1, 1}, Shape{3, 5}, Shape{1, 300}, Shape{200, 1}, Shape{130, 260}}) {
      CAPTURE(d);
      CAPTURE(s);
      const int64_t m = s[0], n = s[1];
      const Array y({m, n}, d, kCPU);
      cpu_backend().gemm({.d = y, .a = filled({m, 4096}, 1, d), .b = filled({4096, n}, 1, d)});
      CHECK(all_are(y, 4096));
    }
  }
}

TEST_CASE("random products are within the bound of float accumulation and one rounding") {
  struct Size {
    int64_t m, n, k;
  };
  double most = 0;  // error, in units of its bound
  const auto within = [&](double error) {
    CHECK(error <= 1);
    most = std::max(most, error);
  };
  for (const Size z :
       {Size{1, 1, 7}, Size{17, 33, 5}, Size{130, 260, 40}, Size{5, 3, 5000}, Size{33, 65, 513},
        Size{129, 1, 511}, Size{1, 257, 1025}, Size{2, 5, 65537}, Size{64, 64, 64}}) {
    CAPTURE(z.m);
    CAPTURE(z.n);
    CAPTURE(z.k);
    for (const Dtype d : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
      CAPTURE(d);
      const Array a = normal({z.m, z.k}, d, 1), b = normal({z.k, z.n}, d, 2);
      const Dtype inner = d == kFloat64 ? kFloat64 : kFloat32;
      const Array y({z.m, z.n}, d, kCPU);
      cpu_backend().gemm({.d = y, .a = a, .b = b});
      within(worst(y, a, b, inner));
      // Transposed operands and a transposed result are the same product.
      const Array at = a.transpose(0, 1).to_contiguous().transpose(0, 1);
      const Array yt = Array({z.n, z.m}, d, kCPU).transpose(0, 1);
      cpu_backend().gemm({.d = yt, .a = at, .b = b});
      CHECK(values(yt) == values(y));
      if (!is_16bit(d)) continue;
      const Array wide({z.m, z.n}, kFloat32, kCPU);  // unrounded, when the result is wider
      cpu_backend().gemm({.d = wide, .a = a, .b = b});
      within(worst(wide, a, b, inner));
      CHECK(values(wide.to(d)) == values(y));
    }
  }
  MESSAGE("the largest error is ", most, " of its bound");
}

TEST_CASE("a half product overflows only in its result, never on the way") {
  // 300·300 leaves half's range; the sum of it and its negative does not.
  const Array a = filled({1, 2}, 300, kFloat16), y({1, 1}, kFloat16, kCPU);
  const Array b({2, 1}, kFloat16, kCPU);
  b.data<Half>()[0] = Half(300.0), b.data<Half>()[1] = Half(-299.0);
  cpu_backend().gemm({.d = y, .a = a, .b = b});
  CHECK(all_are(y, 300));
  cpu_backend().gemm({.d = y, .a = a, .b = filled({2, 1}, 300, kFloat16)});
  CHECK(all_are(y, kInf));
}

TEST_CASE("d = alpha a b + beta d + bias, in that precision, rounded once") {
  for (const Dtype d : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
    CAPTURE(d);
    const Array a = filled({2, 3}, 2, d), b = filled({3, 130}, 1, d);
    const Array y = filled({2, 130}, 8, d);
    const Array bias({130}, kFloat32, kCPU);
    for (int i = 0; i < 130; ++i) bias.data<float>()[i] = static_cast<float>(i);
    cpu_backend().gemm({.d = y, .a = a, .b = b, .bias = &bias, .alpha = 0.5, .beta = 0.25});
    const auto v = values(y);  // 0.5·6 + 0.25·8 + i
    for (size_t i = 0; i < v.size(); ++i) REQUIRE(v[i] == 5 + static_cast<double>(i % 130));
    cpu_backend().gemm({.d = y, .a = a, .b = b, .alpha = -1});
    CHECK(all_are(y, -6));
    cpu_backend().gemm({.d = y, .a = a, .b = b, .alpha = 0, .beta = 1});
    CHECK(all_are(y, -6));
  }
  // 2048 + 1 − 1: with a rounding to half in between the one would be lost.
  const Array one = filled({1}, 1, kFloat16), y = filled({1, 1}, -1, kFloat16);
  const Array a = filled({1, 1}, 2048, kFloat16), b = filled({1, 1}, 1, kFloat16);
  const Array three = filled({1}, 3, kFloat32);
  cpu_backend().gemm({.d = y, .a = a, .b = b, .bias = &three, .beta = 1});
  CHECK(all_are(y, 2050));
  cpu_backend().gemm({.d = y, .a = b, .b = b, .bias = &one});
  CHECK(all_are(y, 2));
}

TEST_CASE("what d held does not matter when beta is 0") {
  for (const Dtype d : {kFloat16, kFloat32, kFloat64}) {
    for (const double rubbish : {kNaN, kInf}) {
      const Array y = filled({3, 4}, rubbish, d);
      cpu_backend().gemm({.d = y, .a = filled({3, 2}, 1, d), .b = filled({2, 4}, 1, d)});
      CHECK(all_are(y, 2));
    }
  }
}

TEST_CASE("a depth of 0 gives beta d + bias, and no rows or columns give nothing") {
  for (const Dtype d : {kFloat16, kFloat32, kFloat64}) {
    const Array y = filled({3, 4}, 5, d), bias = filled({4}, 7, d);
    const Array a({3, 0}, d, kCPU), b({0, 4}, d, kCPU);
    cpu_backend().gemm({.d = y, .a = a, .b = b, .beta = 2});
    CHECK(all_are(y, 10));
    cpu_backend().gemm({.d = y, .a = a, .b = b, .bias = &bias});
    CHECK(all_are(y, 7));
    cpu_backend().gemm({.d = y, .a = a, .b = b});
    CHECK(all_are(y, 0));
    const Array none({0, 4}, d, kCPU), no_columns({2, 3, 0}, d, kCPU);
    cpu_backend().gemm({.d = none, .a = Array({0, 3}, d, kCPU), .b = filled({3, 4}, 1, d)});
    cpu_backend().gemm(
        {.d = no_columns, .a = filled({2, 3, 5}, 1, d), .b = Array({2, 5, 0}, d, kCPU)});
  }
}

TEST_CASE("leading dimensions are a batch, whose matrices may be repeated") {
  const Array a = normal({2, 3, 5, 7}, kFloat32, 1), b = normal({7, 4}, kFloat32, 2);
  const Array y({2, 3, 5, 4}, kFloat32, kCPU), single({5, 4}, kFloat32, kCPU);
  cpu_backend().gemm({.d = y, .a = a, .b = b.expand({2, 3, 7, 4})});
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) {
      cpu_backend().gemm({.d = single, .a = a.select(0, i).select(0, j), .b = b});
      CHECK(values(single) == values(y.select(0, i).select(0, j)));
    }
  }
}

TEST_CASE("one NaN or infinity spoils its row and column and no more") {
  for (const Dtype d : {kFloat16, kFloat32}) {
    const Array a = filled({140, 9}, 1, d), b = filled({9, 270}, 1, d), y({140, 270}, d, kCPU);
    backend(kCPU).fill(a.select(0, 131).select(0, 4), kNaN);
    backend(kCPU).fill(b.select(1, 260).select(0, 2), kInf);
    cpu_backend().gemm({.d = y, .a = a, .b = b});
    const auto v = values(y);
    int64_t wrong = 0;
    for (size_t i = 0; i < 140; ++i) {
      for (size_t j = 0; j < 270; ++j) {
        const double x = v[i * 270 + j];
        wrong += !(i == 131 ? std::isnan(x) : x == (j == 260 ? kInf : 9));
      }
    }
    CHECK(wrong == 0);
  }
}

namespace {

/// What packed_gemm() says an element is.
double chain(const std::vector<double>& a, const std::vector<double>& b, size_t i, size_t j,
             size_t n, size_t k) {
  float sum = 0;
  for (size_t l = 0; l < k; ++l)
    sum = std::fma(static_cast<float>(a[i * k + l]), static_cast<float>(b[l * n + j]), sum);
  return static_cast<double>(sum);
}

}  // namespace

TEST_CASE("with fused multiply-add, an element is one chain of them in any shape and layout") {
  if (get_cpu_capability() == "baseline") return;  // by Eigen, in another order
  const testing::NativeBFloat16 off(false);
  struct Size {
    int64_t m, n, k;
  };
  for (const Size z : {Size{1, 1, 1}, Size{1, 40, 3}, Size{40, 1, 3}, Size{14, 32, 16},
                       Size{6, 16, 8}, Size{15, 33, 17}, Size{29, 47, 520}, Size{3, 100, 1030},
                       Size{100, 5, 513}, Size{65, 64, 512}, Size{400, 70, 30}, Size{8, 2100, 9}}) {
    CAPTURE(z.m);
    CAPTURE(z.n);
    CAPTURE(z.k);
    for (const Dtype d : {kFloat16, kBFloat16, kFloat32}) {
      CAPTURE(d);
      const Array a = normal({z.m, z.k}, d, 3), b = normal({z.k, z.n}, d, 4);
      const auto x = values(a), y = values(b);
      std::vector<double> expected;
      for (int64_t i = 0; i < z.m; ++i)
        for (int64_t j = 0; j < z.n; ++j)
          expected.push_back(chain(x, y, static_cast<size_t>(i), static_cast<size_t>(j),
                                   static_cast<size_t>(z.n), static_cast<size_t>(z.k)));
      const Array exact({z.m, z.n}, kFloat32, kCPU);
      for (size_t i = 0; i < expected.size(); ++i)
        exact.data<float>()[i] = static_cast<float>(expected[i]);
      for (int how = 0; how < 27; ++how) {
        CAPTURE(how);
        const Array result = laid_out(Array({z.m, z.n}, d, kCPU), how / 9);
        backend(kCPU).fill(result, kNaN);
        cpu_backend().gemm({.d = result, .a = laid_out(a, how % 3), .b = laid_out(b, how / 3 % 3)});
        REQUIRE(values(result) == values(exact.to(d)));
      }
      const Array wide({z.m, z.n}, kFloat64, kCPU);
      cpu_backend().gemm({.d = wide, .a = a, .b = b});
      CHECK(values(wide) == expected);
    }
  }
}

TEST_CASE("products have the same bits with any number of threads") {
  const int before = get_num_threads();
  struct Size {
    int64_t batches, m, n, k;
  };
  for (const Size z : {Size{1, 300, 700, 200}, Size{1, 2000, 30, 100}, Size{1, 30, 2000, 100},
                       Size{5, 100, 100, 100}, Size{300, 20, 30, 40}}) {
    CAPTURE(z.batches);
    CAPTURE(z.m);
    const Array a = normal({z.batches, z.m, z.k}, kFloat32, 5),
                b = normal({z.batches, z.k, z.n}, kFloat32, 6), bias = normal({z.n}, kFloat32, 7);
    std::vector<double> first;
    for (const int threads : {1, 2, 3, 8}) {
      set_num_threads(threads);
      const Array y = normal({z.batches, z.m, z.n}, kFloat32, 8);
      cpu_backend().gemm({.d = y, .a = a, .b = b, .bias = &bias, .alpha = 0.3, .beta = 0.7});
      if (first.empty()) first = values(y);
      CHECK(values(y) == first);
    }
  }
  set_num_threads(before);
}

TEST_CASE("a small product has the same bits wherever its result lies") {
  for (int64_t m = 1; m < 8; ++m) {
    for (const int64_t n : {2, 5, 7}) {
      for (const int64_t k : {3, 8, 11}) {
        const Array a = normal({m, k}, kFloat64, 5), b = normal({k, n}, kFloat64, 6),
                    y = filled({m, n}, 0, kFloat64), all = filled({m * n + 8}, 0, kFloat64);
        cpu_backend().gemm({.d = y, .a = a, .b = b});
        for (int64_t at = 0; at < 8; ++at) {
          const Array d = all.as_strided({m, n}, {n, 1}, at);
          cpu_backend().gemm({.d = d, .a = a, .b = b});
          CHECK(values(d) == values(y));
        }
      }
    }
  }
}

TEST_CASE("alpha, beta and bias are the same in every layout of the result") {
  struct Scales {
    double alpha, beta;
    int64_t depth;
  };
  for (const Scales s : {Scales{1.3, -0.7, 40}, Scales{1, 0, 40}, Scales{1, 0, 1100}}) {
    CAPTURE(s.alpha);
    CAPTURE(s.depth);
    for (const Dtype d : {kFloat16, kBFloat16, kFloat32}) {
      CAPTURE(d);
      for (const int64_t n : {3, 32, 50, 96}) {
        const Array a = normal({70, s.depth}, d, 1), b = normal({s.depth, n}, d, 2),
                    c = normal({70, n}, d, 3), bias = normal({n}, kBFloat16, 4);
        std::vector<double> first;
        for (int how = 0; how < 9; ++how) {
          const Array y = laid_out(c.clone(), how % 3);
          cpu_backend().gemm({.d = y,
                              .a = laid_out(a, how / 3),
                              .b = b,
                              .bias = &bias,
                              .alpha = s.alpha,
                              .beta = s.beta});
          if (how == 0) first = values(y);
          CHECK(values(y) == first);
        }
        // v = alpha·sum + beta·d + bias, each rounded to float, then once more into d.
        const auto x = values(a), w = values(b), before = values(c), added = values(bias);
        if (get_cpu_capability() == "baseline" || (d == kBFloat16 && uses_native_bfloat16()))
          continue;
        for (size_t i = 0; i < first.size(); ++i) {
          const auto columns = static_cast<size_t>(n), depth = static_cast<size_t>(s.depth);
          const auto sum =
              static_cast<float>(chain(x, w, i / columns, i % columns, columns, depth));
          float v = static_cast<float>(s.alpha) * sum;
          v += static_cast<float>(s.beta) * static_cast<float>(before[i]);
          v += static_cast<float>(added[i % columns]);
          REQUIRE(values(full({}, static_cast<double>(v), kFloat32, kCPU).to(d))[0] == first[i]);
        }
      }
    }
  }
}

TEST_CASE("relu and its gradient in a product are those of what it gives without") {
  struct Size {
    int64_t batch, m, n, k;
  };
  for (const Size z : {Size{1, 33, 130, 20}, Size{1, 70, 64, 1100}, Size{3, 15, 48, 7},
                       Size{1, 40, 3, 9}, Size{1, 300, 10, 30}}) {
    CAPTURE(z.m);
    CAPTURE(z.n);
    for (const Dtype dtype : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
      CAPTURE(dtype);
      const Array a = normal({z.batch, z.m, z.k}, dtype, 1),
                  b = normal({z.batch, z.k, z.n}, dtype, 2), bias = normal({z.n}, dtype, 3);
      for (const Array* added : {&bias, static_cast<const Array*>(nullptr)}) {
        const Array plain({z.batch, z.m, z.n}, dtype, kCPU);
        cpu_backend().gemm({.d = plain, .a = a, .b = b, .bias = added});
        const auto v = values(plain);
        const Array mask({z.batch, z.m, relu_mask_bytes(z.n)}, kUInt8, kCPU);
        const auto bit = [&](size_t i) {
          const size_t n = static_cast<size_t>(z.n);
          const auto row = static_cast<int64_t>(i / n), j = static_cast<int64_t>(i % n);
          return (mask.data<uint8_t>()[row * relu_mask_bytes(z.n) + j / 8] >> j % 8 & 1) != 0;
        };
        const Array y = empty_like(plain), without = empty_like(plain), g = empty_like(plain);
        cpu_backend().gemm(
            {.d = y, .a = a, .b = b, .bias = added, .epilogue = Epilogue::Relu, .aux = mask});
        cpu_backend().gemm(
            {.d = without, .a = a, .b = b, .bias = added, .epilogue = Epilogue::Relu});
        const auto got = values(y);
        CHECK(values(without) == got);
        for (size_t i = 0; i < v.size(); ++i) {
          REQUIRE(got[i] == (v[i] <= 0 ? 0 : v[i]));
          if (v[i] != 0) REQUIRE(bit(i) == (v[i] > 0));
        }
        backend(kCPU).random(mask, Distribution::Bits, 0, 255, {.seed = 4, .offset = 0});
        cpu_backend().gemm(
            {.d = g, .a = a, .b = b, .bias = added, .epilogue = Epilogue::DRelu, .aux = mask});
        const auto gradient = values(g);
        for (size_t i = 0; i < v.size(); ++i) REQUIRE(gradient[i] == (bit(i) ? v[i] : 0));
      }
    }
  }
  // NaN stays, as in relu; where there is no bit, it goes.
  const Array a = filled({2, 3}, 1, kFloat32), b = filled({3, 40}, kNaN, kFloat32),
              y({2, 40}, kFloat32, kCPU), mask({2, relu_mask_bytes(40)}, kUInt8, kCPU);
  cpu_backend().gemm({.d = y, .a = a, .b = b, .epilogue = Epilogue::Relu, .aux = mask});
  for (const double v : values(y)) CHECK(std::isnan(v));
  backend(kCPU).fill(mask, 0);
  cpu_backend().gemm({.d = y, .a = a, .b = b, .epilogue = Epilogue::DRelu, .aux = mask});
  CHECK(all_are(y, 0));
}
