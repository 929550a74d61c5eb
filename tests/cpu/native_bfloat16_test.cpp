// Products of bfloat16 by the CPU's own instructions for them, each kind that this machine has.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "halftape/core/contract/backend.h"
#include "halftape/core/machine/cpu_capability.h"
#include "halftape/core/machine/threads.h"
#include "halftape/cpu/runtime/native_bfloat16.h"
#include "halftape/tests/support/arrays.h"
#include "halftape/tests/support/native_bfloat16.h"
#include "halftape/tests/support/nonfinite.h"

using namespace halftape;
using testing::kInf, testing::kNaN;
using testing::laid_out, testing::normal, testing::values;

namespace {

/// f(gemm) for each kind.
template <class F>
void each_kind(const F& f) {
  for (const cpu::NativeGemm& kind : cpu::native_bfloat16_gemms()) {
    const std::string instructions = kind.instructions;
    CAPTURE(instructions);
    f(kind);
  }
}

/// One element by AMX (Intel SDM, TDPBF16PS): of 32 products at a time, those of even and those of
/// odd depths are a chain each, and both together are added to the sum.
float by_matrices(const std::vector<double>& a, const std::vector<double>& b, size_t i, size_t j,
                  size_t columns, size_t depth) {
  float sum = 0;
  for (size_t block = 0; block < depth; block += 32) {
    float chains[2] = {0, 0};
    for (size_t k = block; k < std::min(block + 32, depth); ++k)
      chains[k % 2] = std::fma(static_cast<float>(a[i * depth + k]),
                               static_cast<float>(b[k * columns + j]), chains[k % 2]);
    sum += chains[0] + chains[1];
  }
  return sum;
}

/// The largest error against float64, in units of (k + 1)·eps·Σ|a||b| / 2, the bound of sums.
double worst(const Array& d, const Array& a, const Array& b) {
  const auto k = static_cast<size_t>(a.size(1)), n = static_cast<size_t>(d.size(1));
  const auto x = values(a), y = values(b), got = values(d);
  double out = 0;
  for (size_t at = 0; at < got.size(); ++at) {
    double exact = 0, size = 0;  // products of bfloat16 are exact in float64
    for (size_t l = 0; l < k; ++l) {
      const double p = x[at / n * k + l] * y[l * n + at % n];
      exact += p, size += std::abs(p);
    }
    const double bound = size * static_cast<double>(k + 1) * epsilon(kFloat32) / 2;
    out = std::max(out, std::abs(got[at] - exact) / bound);
  }
  return out;
}

/// x within NaN on all sides, its rows an odd number of elements apart.
Array amid_nan(const Array& x) {
  const Array y = full({x.size(0) + 2, x.size(1) + 3}, kNaN, x.dtype(), kCPU);
  const Array inner = y.slice(0, 1, x.size(0) + 1).slice(1, 1, x.size(1) + 1);
  backend(kCPU).copy(inner, x);
  return inner;
}

}  // namespace

TEST_CASE("native products of bfloat16 can be had where the machine has instructions for them") {
  const Array tiny = full({1, 1}, 1e-39, kBFloat16, kCPU), one = full({1, 1}, 1, kBFloat16, kCPU),
              product({1, 1}, kBFloat16, kCPU);
  {
    const testing::NativeBFloat16 off(false);
    cpu_backend().gemm({.d = product, .a = tiny, .b = one});
    CHECK(values(product) == values(tiny));
  }
  if (!has_native_bfloat16()) {
    CHECK_THROWS_WITH_AS(set_native_bfloat16(true), doctest::Contains("no instructions"), Error);
    CHECK(!uses_native_bfloat16());
    CHECK(cpu::native_bfloat16_gemms().empty());
    return;
  }
  const testing::NativeBFloat16 on(true);
  cpu_backend().gemm({.d = product, .a = tiny, .b = one});
  CHECK(values(product)[0] == 0);  // by which it is seen to be on
}

TEST_CASE("native products of bfloat16 are right and the same in any shape and layout") {
  struct Size {
    int64_t m, n, k;
  };
  each_kind([](const cpu::NativeGemm& kind) {
    for (const Size z :
         {Size{1, 1, 1}, Size{1, 40, 3}, Size{40, 1, 3}, Size{16, 16, 32}, Size{14, 32, 16},
          Size{15, 33, 17}, Size{17, 49, 31}, Size{29, 47, 1031}, Size{65, 64, 512},
          Size{8, 3100, 9}, Size{361, 34, 70}, Size{33, 65, 2100}}) {
      CAPTURE(z.m);
      CAPTURE(z.k);
      const Array a = normal({z.m, z.k}, kBFloat16, 3), b = normal({z.k, z.n}, kBFloat16, 4);
      const Array wide({z.m, z.n}, kFloat32, kCPU), first = wide.to(kBFloat16);
      kind.gemm({.d = wide, .a = a, .b = b});
      CHECK(worst(wide, a, b) <= 1);
      if (kind.instructions == std::string("AMX")) {
        const auto x = values(a), y = values(b), got = values(wide);
        const auto n = static_cast<size_t>(z.n);
        for (size_t i = 0; i < got.size(); ++i) {
          const float expected = by_matrices(x, y, i / n, i % n, n, static_cast<size_t>(z.k));
          REQUIRE(static_cast<float>(got[i]) == expected);
        }
      }
      backend(kCPU).copy(first, wide);
      for (int how = 0; how < 27; ++how) {
        CAPTURE(how);
        const Array result = laid_out(Array({z.m, z.n}, kBFloat16, kCPU), how / 9);
        backend(kCPU).fill(result, kNaN);
        kind.gemm({.d = result, .a = laid_out(a, how % 3), .b = laid_out(b, how / 3 % 3)});
        REQUIRE(values(result) == values(first));
      }
      // What lies around the operands is not read, and around the result not written.
      const Array result = amid_nan(first);
      backend(kCPU).fill(result, kNaN);
      kind.gemm({.d = result, .a = amid_nan(a), .b = amid_nan(b)});
      CHECK(values(result) == values(first));
      kind.gemm({.d = result,
                 .a = amid_nan(a.transpose(0, 1)).transpose(0, 1),
                 .b = amid_nan(b.transpose(0, 1)).transpose(0, 1)});
      CHECK(values(result) == values(first));
      const Array all = result.as_strided({z.m + 2, z.n + 3}, {z.n + 3, 1}, 0);
      for (const Array& around : {all.slice(0, 0, 1), all.slice(0, z.m + 1, z.m + 2),
                                  all.slice(1, 0, 1), all.slice(1, z.n + 1, z.n + 3)})
        for (const double v : values(around)) REQUIRE(std::isnan(v));
      for (const Dtype d : {kFloat16, kFloat64}) {
        const Array other({z.m, z.n}, d, kCPU);
        kind.gemm({.d = other, .a = a, .b = b});
        REQUIRE(values(other) == values(wide.to(d)));
      }
    }
  });
}

TEST_CASE("native products of bfloat16 scale, add and end as others do, in any number of threads") {
  each_kind([](const cpu::NativeGemm& kind) {
    for (const int64_t n : {3, 16, 50, 200}) {
      for (const int64_t k : {40, 1100}) {
        CAPTURE(n);
        CAPTURE(k);
        const Array a = normal({3, 70, k}, kBFloat16, 1), b = normal({3, k, n}, kBFloat16, 2),
                    bias = normal({n}, kFloat32, 4), sums({3, 70, n}, kFloat32, kCPU);
        kind.gemm({.d = sums, .a = a, .b = b});
        const auto s = values(sums), added = values(bias);
        const int before = get_num_threads();
        for (const int threads : {1, 2, 5}) {
          set_num_threads(threads);
          const Array y = normal({3, 70, n}, kFloat32, 3), c = y.clone();
          kind.gemm({.d = y, .a = a, .b = b, .bias = &bias, .alpha = 1.3, .beta = -0.7});
          const auto got = values(y), old = values(c);
          for (size_t i = 0; i < got.size(); ++i) {
            float v = 1.3f * static_cast<float>(s[i]);
            v += -0.7f * static_cast<float>(old[i]);
            v += static_cast<float>(added[i % static_cast<size_t>(n)]);
            REQUIRE(static_cast<float>(got[i]) == v);
          }
          if (n < 16) continue;  // others end narrow products
          const Array relu = y.clone();
          const Array mask({3, 70, relu_mask_bytes(n)}, kUInt8, kCPU);
          kind.gemm(
              {.d = relu, .a = a, .b = b, .bias = &bias, .epilogue = Epilogue::Relu, .aux = mask});
          const Array gradient = y.clone();
          kind.gemm({.d = gradient, .a = a, .b = b, .epilogue = Epilogue::DRelu, .aux = mask});
          const auto kept = values(relu), slope = values(gradient);
          for (size_t i = 0; i < kept.size(); ++i) {
            const float v =
                static_cast<float>(s[i]) + static_cast<float>(added[i % static_cast<size_t>(n)]);
            REQUIRE(static_cast<float>(kept[i]) == (v <= 0 ? 0 : v));
            REQUIRE(slope[i] == (v <= 0 ? 0 : s[i]));
          }
        }
        set_num_threads(before);
      }
    }
  });
}

TEST_CASE("native products of bfloat16 keep infinity and NaN to their row or column") {
  each_kind([](const cpu::NativeGemm& kind) {
    for (const double bad : {kInf, kNaN}) {
      const Array a = full({40, 50}, 1, kBFloat16, kCPU), b = full({50, 40}, 1, kBFloat16, kCPU),
                  y({40, 40}, kBFloat16, kCPU);
      backend(kCPU).fill(a.slice(0, 33, 34).slice(1, 49, 50), bad);
      kind.gemm({.d = y, .a = a, .b = b});
      const auto got = values(y);
      for (size_t i = 0; i < got.size(); ++i) {
        if (i / 40 != 33)
          REQUIRE(got[i] == 50);
        else
          REQUIRE((std::isnan(bad) ? std::isnan(got[i]) : got[i] == bad));
      }
    }
  });
}

TEST_CASE("native products of bfloat16 are no less accurate than chains, against float64") {
  each_kind([](const cpu::NativeGemm& kind) {
    for (const int64_t k : {16, 256, 784, 4096}) {
      const Array a = normal({128, k}, kBFloat16, 9), b = normal({k, 128}, kBFloat16, 10);
      const Array right({128, 128}, kFloat64, kCPU), native({128, 128}, kFloat32, kCPU),
          chain = empty_like(native);
      cpu_backend().gemm({.d = right, .a = a.to(kFloat64), .b = b.to(kFloat64)});
      kind.gemm({.d = native, .a = a, .b = b});
      {
        const testing::NativeBFloat16 off(false);
        cpu_backend().gemm({.d = chain, .a = a, .b = b});
      }
      const auto error = [&](const Array& got) {  // root mean square
        double sum = 0;
        for (int64_t i = 0; i < right.numel(); ++i)
          sum += std::pow(static_cast<double>(got.data<float>()[i]) - right.data<double>()[i], 2);
        return std::sqrt(sum / static_cast<double>(right.numel()));
      };
      MESSAGE(std::string(kind.instructions), ", a depth of ", k, ": ", error(native), ", chain ",
              error(chain));
      CHECK(error(native) <= 1.05 * error(chain));
    }
  });
}
