// Matrix products of the contract, and what follows a product inside its call.
#include <doctest/doctest.h>

#include "halftape/tests/support/native_bfloat16.h"
#include "halftape/tests/support/placed.h"

using namespace halftape;
using namespace halftape::testing;

namespace {

/// A GPU's library may sum in another order for another layout: there, numbers whose sums are
/// exact.
Array factors(const Shape& shape, Dtype dtype, uint32_t seed) {
  if (get_default_device().is_cpu()) return numbers(shape, dtype, seed, false);
  const Array whole(shape, kInt64, kCPU);
  backend(kCPU).random(whole, Distribution::Bits, -3, 3, {.seed = seed, .offset = 0});
  return whole.to(dtype);
}

}  // namespace

TEST_CASE("matrix products give the same bits in every layout") {
  struct Size {
    int64_t m, n, k;
  };
  // Single tiles, several, one row or column beyond a tile of 128 x 256, and products so small that
  // Eigen takes another path.
  for (const Size z : {Size{1, 1, 1}, Size{2, 5, 3}, Size{5, 6, 7}, Size{33, 31, 9},
                       Size{1, 1, 1000}, Size{129, 1, 100}, Size{1, 257, 100}, Size{129, 257, 40},
                       Size{70, 260, 300}, Size{3, 4, 0}, Size{0, 4, 3}, Size{3, 0, 3}}) {
    for (const Dtype d : floats) {
      const auto random = [d](const Shape& s, uint32_t seed) { return factors(s, d, seed); };
      for (const double beta : {0.0, 0.5})
        check({"gemm",
               {random({z.m, z.n}, 1)},
               {random({z.m, z.k}, 2), random({z.k, z.n}, 3)},
               [beta](const Arrays& y, const Arrays& x) {
                 tested().gemm({.d = y[0], .a = x[0], .b = x[1], .alpha = 1, .beta = beta});
               }});
      check({"gemm, batched with bias",
             {random({2, z.m, z.n}, 1)},
             {random({2, z.m, z.k}, 2), random({2, z.k, z.n}, 3), random({z.n}, 4)},
             [](const Arrays& y, const Arrays& x) {
               tested().gemm({.d = y[0], .a = x[0], .b = x[1], .bias = &x[2], .alpha = -1.5});
             }});
    }
  }
}

TEST_CASE("what follows a product inside its call gives the same bits in every layout") {
  for (const Shape& z : {Shape{5, 6, 7}, Shape{33, 31, 9}, Shape{3, 8, 0}, Shape{129, 257, 40}}) {
    for (const Dtype d : floats) {
      const auto random = [d](const Shape& s, uint32_t seed) { return factors(s, d, seed); };
      const Array a = random({z[0], z[2]}, 2), b = random({z[2], z[1]}, 3),
                  y = random({z[0], z[1]}, 1), columns = random({z[1]}, 4),
                  rows = random({z[0]}, 5);
      check({"gemm with relu", {y}, {a, b, columns}, [](const Arrays& out, const Arrays& x) {
               tested().gemm({.d = out[0],
                              .a = x[0],
                              .b = x[1],
                              .bias = &x[2],
                              .alpha = 0.5,
                              .epilogue = Epilogue::Relu});
             }});
      check({"gemm with gelu", {y, y}, {a, b, columns}, [](const Arrays& out, const Arrays& x) {
               tested().gemm({.d = out[0],
                              .a = x[0],
                              .b = x[1],
                              .bias = &x[2],
                              .beta = 0.5,
                              .epilogue = Epilogue::Gelu,
                              .aux = out[1]});
             }});
      check({"gemm with gelu's gradient",
             {y, columns},
             {a, b, y},
             [](const Arrays& out, const Arrays& x) {
               tested().gemm({.d = out[0],
                              .a = x[0],
                              .b = x[1],
                              .epilogue = Epilogue::DGelu,
                              .aux = x[2],
                              .bias_grad = out[1]});
             }});
      // A library may sum in another order: exact numbers, whose sums are exact.
      const Array exact({z[0], z[2]}, kInt64, kCPU);
      backend(kCPU).random(exact, Distribution::Bits, -3, 3, {.seed = 1, .offset = 0});
      check({"gemm with a bias's gradient",
             {y, rows},
             {exact.to(d), b},
             [](const Arrays& out, const Arrays& x) {
               tested().gemm({.d = out[0], .a = x[0], .b = x[1], .bias_grad = out[1]});
             }});
    }
  }
}

TEST_CASE("relu's mask has one bit for each column, and its gradient reads them") {
  const halftape::testing::NativeBFloat16 off(false);  // which takes subnormal numbers as 0
  for (const Dtype d : floats) {
    for (const int64_t n : {3, 8, 130}) {
      const Array v = numbers({1, n}, d, 3), y({1, n}, d, kCPU),
                  mask({1, relu_mask_bytes(n)}, kUInt8, kCPU), g = full({1, n}, 2, d, kCPU);
      const Array host = full({1, 1}, 1, d, kCPU);
      backend(kCPU).gemm({.d = y, .a = host, .b = v, .epilogue = Epilogue::Relu, .aux = mask});
      for (int64_t j = 0; j < n; ++j) {
        const double x = read_double(v.select(1, j).select(0, 0));
        const bool passes = !(x <= 0);
        CHECK((mask.data<uint8_t>()[j / 8] >> j % 8 & 1) == passes);
        const double got = read_double(y.select(1, j).select(0, 0));
        CHECK((passes ? got == x || x != x : got == 0));
      }
      backend(kCPU).gemm({.d = y, .a = host, .b = g, .epilogue = Epilogue::DRelu, .aux = mask});
      for (int64_t j = 0; j < n; ++j)
        CHECK(read_double(y.select(1, j).select(0, 0)) ==
              2 * (mask.data<uint8_t>()[j / 8] >> j % 8 & 1));
    }
  }
}

TEST_CASE("the sign of a zero in a small product does not depend on the layout") {
  for (const Dtype d : {kFloat32, kFloat64}) {
    const Array a = numbers({3, 1}, d, 2, false), b = full({1, 7}, -0.0, d, kCPU);
    check({"gemm of zeros", {numbers({3, 7}, d)}, {a, b}, [](const Arrays& y, const Arrays& x) {
             tested().gemm({.d = y[0], .a = x[0], .b = x[1]});
           }});
  }
}
