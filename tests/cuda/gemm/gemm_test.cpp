// Matrix products on the GPU, beside float64 products on the CPU.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "halftape/core/contract/backend.h"
#include "halftape/cuda/cuda.h"
#include "halftape/tests/support/arrays.h"

using namespace halftape;
using testing::normal, testing::values;

namespace {

constexpr double kGuard = 77;  // between and around the elements

Array filled(const Shape& shape, double value, Dtype dtype, Device device = kCUDA) {
  return full(shape, value, dtype, device);
}
bool all_are(const Array& a, double value) {
  for (const double v : values(a))
    if (v != value) return false;
  return true;
}

enum class OperandLayout { Plain, Offset, Padded, Turned, TurnedAndPadded, Stepped, size };

/// A view of `shape` in a larger array.
struct Placed {
  Array room, view;
  Placed(const Array& from, OperandLayout layout) {
    const Shape& shape = from.shape();
    const int last = shape.size() - 1;
    Shape size = shape;
    const bool turned = layout == OperandLayout::Turned || layout == OperandLayout::TurnedAndPadded;
    if (turned) std::swap(size[last], size[last - 1]);
    if (layout == OperandLayout::Offset) size = {from.numel() + 3};
    if (layout == OperandLayout::Padded || layout == OperandLayout::TurnedAndPadded)
      size[last] += 3;
    if (layout == OperandLayout::Stepped) size[last] = 3 * size[last] + 2;
    const auto seen = [&](const Array& all) {
      switch (layout) {
        case OperandLayout::Offset:
          return all.as_strided(shape, contiguous_strides(shape), 1);
        case OperandLayout::Padded:
          return all.slice(last, 0, shape[last]);
        case OperandLayout::Turned:
          return all.transpose(last, last - 1);
        case OperandLayout::TurnedAndPadded:
          return all.slice(last, 0, shape[last - 1]).transpose(last, last - 1);
        case OperandLayout::Stepped:
          return all.slice(last, 1, 1 + 3 * shape[last], 3);
        default:
          return all;
      }
    };
    const Array host = filled(size, kGuard, from.dtype(), kCPU);
    backend(kCPU).copy(seen(host), from);
    room = host.to(Device(kCUDA));
    view = seen(room);
  }
  /// True if only elements have been written. Overwrites them.
  bool kept() const {
    backend(kCUDA).fill(view, kGuard);
    return all_are(room, room.dtype() == kBool ? 1 : kGuard);
  }
};

/// One product, with all its options.
struct ProductCase {
  Dtype factors = kFloat32, result = kFloat32;
  int64_t m = 1, n = 1, k = 1;
  Shape batch = {}, batch_a = {}, batch_b = {};  // those of a and b broadcast
  OperandLayout layout_a = OperandLayout::Plain, layout_b = OperandLayout::Plain,
                layout_d = OperandLayout::Plain;
  bool biased = false, bias_offset = false;
  Dtype bias = kFloat32;
  double alpha = 1, beta = 0;
};

Shape with(Shape batch, int64_t rows, int64_t columns) {
  batch.push_back(rows);
  batch.push_back(columns);
  return batch;
}
Array doubles(const Array& a, bool absolute) {
  const Array wide = a.to(kFloat64).clone();
  for (int64_t i = 0; absolute && i < wide.numel(); ++i)
    wide.data<double>()[i] = std::abs(wide.data<double>()[i]);
  return wide;
}

/// The largest error in units of its bound, that of k + 3 operations in the precision of the sum
/// and one rounding. 1e9 if anything else was written.
double worst(const ProductCase& c, uint64_t seed) {
  const Array a = normal(with(c.batch_a, c.m, c.k), c.factors, seed),
              b = normal(with(c.batch_b, c.k, c.n), c.factors, seed + 1),
              d = c.beta != 0 ? normal(with(c.batch, c.m, c.n), c.result, seed + 2)
                              : filled(with(c.batch, c.m, c.n), NAN, c.result, kCPU),
              bias =
                  normal({c.n + 1}, c.bias, seed + 3).slice(0, c.bias_offset, c.n + c.bias_offset);
  // The exact sum, and the sum of all magnitudes.
  std::vector<double> exact[2];
  for (const bool absolute : {false, true}) {
    const Array sum = doubles(d, absolute), added = doubles(bias, absolute);
    backend(kCPU).gemm({.d = sum,
                        .a = doubles(a, absolute).expand(with(c.batch, c.m, c.k)),
                        .b = doubles(b, absolute).expand(with(c.batch, c.k, c.n)),
                        .bias = c.biased ? &added : nullptr,
                        .alpha = absolute ? std::abs(c.alpha) : c.alpha,
                        .beta = absolute ? std::abs(c.beta) : c.beta});
    exact[absolute] = values(sum);
  }
  const Placed on_a(a, c.layout_a), on_b(b, c.layout_b), on_d(d, c.layout_d);
  const Array whole_bias = bias.as_strided({c.n + 1}, {1}, 0).to(Device(kCUDA));
  const Array on_bias = whole_bias.slice(0, c.bias_offset, c.n + c.bias_offset);
  backend(kCUDA).gemm({.d = on_d.view,
                       .a = on_a.view.expand(with(c.batch, c.m, c.k)),
                       .b = on_b.view.expand(with(c.batch, c.k, c.n)),
                       .bias = c.biased ? &on_bias : nullptr,
                       .alpha = c.alpha,
                       .beta = c.beta});
  const std::vector<double> got = values(on_d.view);
  const double eps = epsilon(c.factors == kFloat64 ? kFloat64 : kFloat32);
  double out = on_d.kept() && got.size() == exact[0].size() ? 0 : 1e9;
  for (size_t i = 0; i < got.size(); ++i) {
    const double sum_error = exact[1][i] * static_cast<double>(c.k + 3) * eps;
    const double bound =
        sum_error +
        std::ldexp(epsilon(c.result), std::ilogb(std::abs(exact[0][i]) + sum_error)) / 2 +
        (c.result == kFloat16 ? 0x1p-25 : 0);
    const double error = std::abs(got[i] - exact[0][i]);
    out = std::max(out, std::isnan(error) ? 1e9 : error / bound);
  }
  return out;
}

std::ostream& operator<<(std::ostream& to, const ProductCase& c) {
  return to << c.factors << " → " << c.result << ", " << c.m << " × " << c.n << " × " << c.k
            << ", batch " << c.batch << " a " << c.batch_a << " b " << c.batch_b << ", layouts "
            << static_cast<int>(c.layout_d) << static_cast<int>(c.layout_a)
            << static_cast<int>(c.layout_b) << ", bias " << (c.biased ? name(c.bias) : "none")
            << (c.bias_offset ? " offset" : "") << ", alpha " << c.alpha << ", beta " << c.beta;
}

}  // namespace

TEST_SUITE("cuda") {
  TEST_CASE("products of any shapes, layouts and dtypes are sums in float, rounded once") {
    std::mt19937 random_number(1);
    const auto any = [&](const auto& from) -> decltype(auto) {
      return *(std::begin(from) + random_number() % std::size(from));
    };
    const int64_t sizes[] = {1, 2, 7, 8, 9, 16, 17, 31, 33, 64, 65, 127};
    const std::pair<Dtype, Dtype> dtypes[] = {
        {kFloat16, kFloat16},   {kFloat16, kFloat16},  {kFloat16, kFloat32},
        {kBFloat16, kBFloat16}, {kBFloat16, kFloat32}, {kFloat32, kFloat32},
        {kFloat64, kFloat64},   {kFloat16, kFloat64},  {kFloat32, kFloat16}};
    const Shape batches[] = {{}, {}, {}, {1}, {3}, {2, 3}, {2, 1, 2}};
    const Dtype biases[] = {kFloat16, kBFloat16, kFloat32, kFloat64};
    const double betas[] = {0, 0, 1, 0.5}, alphas[] = {1, 1, -1.5};
    const auto layout = [&] {
      return random_number() % 2
                 ? OperandLayout::Plain
                 : static_cast<OperandLayout>(random_number() %
                                              static_cast<unsigned>(OperandLayout::size));
    };
    for (uint64_t i = 0; i < 600; ++i) {
      ProductCase c;
      std::tie(c.factors, c.result) = any(dtypes);
      c.m = any(sizes), c.n = any(sizes), c.k = any(sizes);
      c.batch = c.batch_a = c.batch_b = any(batches);
      for (Shape* s : {&c.batch_a, &c.batch_b})
        for (int64_t& size : *s)
          if (random_number() % 3 == 0) size = 1;
      if (random_number() % 4 == 0) c.batch_b = {};
      c.layout_a = layout(), c.layout_b = layout(), c.layout_d = layout();
      c.biased = random_number() % 2, c.bias_offset = random_number() % 4 == 0;
      c.bias = random_number() % 2 ? c.result : any(biases);
      c.alpha = any(alphas), c.beta = any(betas);
      CAPTURE(c);
      CHECK(worst(c, i) <= 1);
    }
  }

  TEST_CASE("a linear layer's product: any batch, width and dtype, with its bias") {
    uint64_t seed = 1000;
    for (const int64_t rows : {1, 5, 64})
      for (const int64_t in : {1, 10, 128})
        for (const int64_t out : {1, 10, 128})
          for (const Dtype d : {kFloat16, kBFloat16, kFloat32}) {
            const ProductCase c{.factors = d,
                                .result = d,
                                .m = rows,
                                .n = out,
                                .k = in,
                                .layout_b = OperandLayout::Turned,
                                .biased = true,
                                .bias = d};
            CAPTURE(c);
            CHECK(worst(c, seed += 10) <= 1);
          }
  }

  TEST_CASE("4096 ones in half sum to exactly 4096, where a half accumulator would stop at 2048") {
    for (const Dtype d : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
      for (const Shape& s : {Shape{1, 1}, Shape{3, 5}, Shape{1, 70}, Shape{70, 1}}) {
        CAPTURE(d);
        CAPTURE(s);
        const Array y({s[0], s[1]}, d, kCUDA);
        backend(kCUDA).gemm(
            {.d = y, .a = filled({s[0], 4096}, 1, d), .b = filled({4096, s[1]}, 1, d)});
        CHECK(all_are(y, 4096));
      }
    }
  }

  TEST_CASE("what is added to a half product is added before it is rounded") {
    // 2048 + 3 − 1: with a rounding to half in between, the one would be lost.
    const Array a = filled({1, 1}, 2048, kFloat16), b = filled({1, 1}, 1, kFloat16);
    for (const Dtype bias_dtype : {kFloat16, kFloat32}) {
      const Array three = filled({1}, 3, bias_dtype), y = filled({1, 1}, -1, kFloat16);
      backend(kCUDA).gemm({.d = y, .a = a, .b = b, .bias = &three, .beta = 1});
      CHECK(all_are(y, 2050));
    }
    // 2049 is halfway to 2050; a float32 bias of a little more than 1 is no tie.
    const Array more = filled({1}, 1.0009765625, kFloat32), y({1, 1}, kFloat16, kCUDA);
    backend(kCUDA).gemm({.d = y, .a = a, .b = b, .bias = &more});
    CHECK(all_are(y, 2050));
  }

  TEST_CASE("a depth of 0 gives beta d + bias, and no rows or columns give nothing") {
    for (const Dtype d : {kFloat16, kFloat32, kFloat64}) {
      const Array y = filled({3, 4}, 5, d), bias = filled({4}, 7, d);
      const Array a({3, 0}, d, kCUDA), b({0, 4}, d, kCUDA);
      backend(kCUDA).gemm({.d = y, .a = a, .b = b, .beta = 2});
      CHECK(all_are(y, 10));
      backend(kCUDA).gemm({.d = y, .a = a, .b = b, .bias = &bias});
      CHECK(all_are(y, 7));
      backend(kCUDA).gemm({.d = y, .a = a, .b = b});
      CHECK(all_are(y, 0));
      const Array none({0, 4}, d, kCUDA), no_columns({2, 3, 0}, d, kCUDA);
      backend(kCUDA).gemm({.d = none, .a = Array({0, 3}, d, kCUDA), .b = filled({3, 4}, 1, d)});
      backend(kCUDA).gemm(
          {.d = no_columns, .a = filled({2, 3, 5}, 1, d), .b = Array({2, 5, 0}, d, kCUDA)});
    }
  }

  TEST_CASE("what d held does not matter when beta is 0") {
    for (const Dtype d : {kFloat16, kFloat32, kFloat64}) {
      for (const double rubbish : {double(NAN), double(INFINITY)}) {
        const Array bias = filled({4}, 1, kFloat64);
        const Array y = filled({3, 4}, rubbish, d);
        backend(kCUDA).gemm({.d = y, .a = filled({3, 2}, 1, d), .b = filled({2, 4}, 1, d)});
        CHECK(all_are(y, 2));
        backend(kCUDA).fill(y, rubbish);
        backend(kCUDA).gemm(
            {.d = y, .a = filled({3, 2}, 1, d), .b = filled({2, 4}, 1, d), .bias = &bias});
        CHECK(all_are(y, 3));
      }
    }
  }

  TEST_CASE("one NaN or infinity spoils its row and column and no more") {
    for (const Dtype d : {kFloat16, kFloat32}) {
      const Array a = filled({70, 9}, 1, d), b = filled({9, 130}, 1, d), y({70, 130}, d, kCUDA);

      backend(kCUDA).fill(a.select(0, 61).select(0, 4), NAN);
      backend(kCUDA).fill(b.select(1, 120).select(0, 2), INFINITY);
      backend(kCUDA).gemm({.d = y, .a = a, .b = b});
      const auto v = values(y);
      int64_t wrong = 0;
      for (size_t i = 0; i < 70; ++i)
        for (size_t j = 0; j < 130; ++j) {
          const double x = v[i * 130 + j];
          wrong += !(i == 61 ? std::isnan(x) : x == (j == 120 ? double(INFINITY) : 9));
        }
      CHECK(wrong == 0);
    }
  }

  TEST_CASE("whole numbers, as factors and as results, are what they are on the CPU") {
    const Dtype all[] = {kBool, kUInt8, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64};
    uint64_t seed = 1;
    for (const Dtype factors : all) {
      for (const Dtype result : all) {
        if (is_floating_point(factors) && is_floating_point(result)) continue;
        CAPTURE(factors);
        CAPTURE(result);
        for (const OperandLayout l :
             {OperandLayout::Plain, OperandLayout::Turned, OperandLayout::Stepped}) {
          const auto whole = [&](const Shape& s, Dtype d) {
            const Array x(s, kInt64, kCPU);
            backend(kCPU).random(x, Distribution::Bits, 0, 3, {.seed = ++seed, .offset = 0});
            return x.to(d);
          };
          const Array a = whole({2, 67, 21}, factors), b = whole({2, 21, 66}, factors),
                      d = whole({2, 67, 66}, result), bias = whole({66}, kFloat32);
          const Placed on_a(a, l), on_b(b, l), on_d(d, l);
          const Array on_bias = bias.to(Device(kCUDA));
          backend(kCPU).gemm({.d = d, .a = a, .b = b, .bias = &bias, .alpha = 1, .beta = 1});
          backend(kCUDA).gemm({.d = on_d.view,
                               .a = on_a.view,
                               .b = on_b.view,
                               .bias = &on_bias,
                               .alpha = 1,
                               .beta = 1});
          CHECK(values(on_d.view) == values(d));
          CHECK(on_d.kept());
        }
      }
    }
  }

  TEST_CASE("a batch may be longer than one call of the library takes") {
    const int64_t count = 70001;
    const Array a = normal({count, 1, 2}, kFloat32, 1), b = normal({count, 2, 1}, kFloat32, 2);
    const Array y({count, 1, 1}, kFloat32, kCUDA), expected({count, 1, 1}, kFloat64, kCPU);
    backend(kCUDA).gemm({.d = y, .a = a.to(Device(kCUDA)), .b = b.to(Device(kCUDA))});
    backend(kCPU).gemm({.d = expected, .a = a.to(kFloat64), .b = b.to(kFloat64)});
    const auto got = values(y), exact = values(expected);
    double error = 0;
    for (size_t i = 0; i < got.size(); ++i) error = std::max(error, std::abs(got[i] - exact[i]));
    CHECK(error < 1e-5);
  }

  TEST_CASE("heads of attention: two leading dimensions that are not one") {
    // (B, T, H, C) seen as (B, H, T, C), as a model makes them.
    for (const Dtype d : {kFloat16, kFloat32}) {
      const int64_t B = 5, H = 3, T = 9, C = 8;
      const Array q = normal({B, T, H, C}, d, 1).to(Device(kCUDA)).permute({0, 2, 1, 3}),
                  k = normal({B, T, H, C}, d, 2).to(Device(kCUDA)).permute({0, 2, 1, 3});
      const Array y({B, H, T, T}, d, kCUDA), one({T, T}, d, kCUDA);
      backend(kCUDA).gemm({.d = y, .a = q, .b = k.transpose(2, 3), .alpha = 0.5});
      for (int64_t i = 0; i < B; ++i)
        for (int64_t h = 0; h < H; ++h) {
          backend(kCUDA).gemm({.d = one,
                               .a = q.select(0, i).select(0, h),
                               .b = k.select(0, i).select(0, h).transpose(0, 1),
                               .alpha = 0.5});
          const auto alone = values(one), batched = values(y.select(0, i).select(0, h));
          for (size_t j = 0; j < alone.size(); ++j)
            REQUIRE(std::abs(alone[j] - batched[j]) <=  // the order of a sum may be another
                    (d == kFloat16 ? 1 : C) * epsilon(d) * (1 + std::abs(batched[j])));
        }
    }
  }

  TEST_CASE("the same product has the same bits every time, and while sums may be reduced") {
    const Array a = normal({33, 500}, kFloat16, 1).to(Device(kCUDA)),
                b = normal({500, 20}, kFloat16, 2).to(Device(kCUDA));
    const auto product = [&] {
      const Array y({33, 20}, kFloat16, kCUDA);
      backend(kCUDA).gemm({.d = y, .a = a, .b = b});
      return values(y);
    };
    const auto first = product();
    cuda::allow_fp16_reduced_precision_reduction(true);
    const auto reduced = product();
    cuda::allow_fp16_reduced_precision_reduction(false);
    for (int i = 0; i < 3; ++i) CHECK(product() == first);
    for (size_t i = 0; i < first.size(); ++i)
      CHECK(reduced[i] == doctest::Approx(first[i]).epsilon(0.02));
  }
}
