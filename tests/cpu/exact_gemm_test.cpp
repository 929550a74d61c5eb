// Products of whole numbers whose sums every order of summation gives exactly: what is compared is
// which elements meet, and that the result is rounded once.
#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <vector>

#include "halftape/core/contract/backend.h"
#include "halftape/core/machine/threads.h"
#include "halftape/tests/support/arrays.h"
#include "halftape/tests/support/dtypes.h"

using namespace halftape;
using testing::kFloats;
using testing::laid_out;

namespace {

/// The values, row by row, rounded to the dtype: a sum of whole numbers below 2^53 is a double.
Array rounded(const std::vector<int64_t>& values, const Shape& shape, Dtype dtype) {
  const Array y(shape, kFloat64, kCPU);
  for (size_t i = 0; i < values.size(); ++i) y.data<double>()[i] = static_cast<double>(values[i]);
  return y.to(dtype);
}
bool same_bits(const Array& a, const Array& b) {
  const Array x = a.to_contiguous(), y = b.to_contiguous();
  const size_t bytes = static_cast<size_t>(x.numel()) * element_size(x.dtype());
  return bytes == 0 || std::memcmp(x.raw(), y.raw(), bytes) == 0;
}

/// Draws shapes and whole numbers.
class Draw {
 public:
  int64_t number(int64_t low, int64_t high) {  // both included
    return low + static_cast<int64_t>(random_() % static_cast<uint32_t>(high - low + 1));
  }
  /// Nothing, one, a prime, or a number beside a power of two, where tiles end.
  int64_t length(int64_t largest_power) {
    static constexpr int64_t few[] = {0, 1, 1, 2, 3, 5, 7, 11, 13, 19, 23, 37, 61, 97};
    if (number(0, 2) == 0) return few[number(0, std::size(few) - 1)];
    return (int64_t{1} << number(2, largest_power)) + number(-1, 1);
  }
  /// From −8 to 8 without 0: whether 0 · −3 alone is 0 or −0 is left open.
  std::vector<int64_t> numbers(int64_t n) {
    std::vector<int64_t> all(static_cast<size_t>(n));
    for (int64_t& x : all) x = number(1, 8) * (number(0, 1) ? 1 : -1);
    return all;
  }

 private:
  std::mt19937 random_{1};
};

}  // namespace

TEST_CASE("500 products of random shapes are the sums of whole numbers, bit for bit") {
  const int threads_before = get_num_threads();
  Draw draw;
  int64_t products = 0, empty = 0, elements = 0;
  for (int round = 0; round < 500; ++round) {
    const int64_t batch = draw.number(0, 3) ? 1 : draw.number(2, 3);
    const int64_t m = draw.length(7), n = draw.length(8), k = draw.length(9);
    CAPTURE(batch);
    CAPTURE(m);
    CAPTURE(n);
    CAPTURE(k);
    const auto a = draw.numbers(batch * m * k), b = draw.numbers(batch * k * n);
    std::vector<int64_t> sums(static_cast<size_t>(batch * m * n));
    for (int64_t row = 0; row < batch * m; ++row)
      for (int64_t l = 0; l < k; ++l)
        for (int64_t j = 0; j < n; ++j)
          sums[static_cast<size_t>(row * n + j)] +=
              a[static_cast<size_t>(row * k + l)] *
              b[static_cast<size_t>((row / m * k + l) * n + j)];
    set_num_threads(static_cast<int>(draw.number(1, 4)));
    for (const Dtype d : kFloats) {
      CAPTURE(d);
      const Array y = laid_out(Array({batch, m, n}, d, kCPU), static_cast<int>(draw.number(0, 2)));
      cpu_backend().gemm(
          {.d = y,
           .a = laid_out(rounded(a, {batch, m, k}, d), static_cast<int>(draw.number(0, 2))),
           .b = laid_out(rounded(b, {batch, k, n}, d), static_cast<int>(draw.number(0, 2)))});
      REQUIRE(same_bits(y, rounded(sums, {batch, m, n}, d)));
      ++products;
    }
    empty += m * n * k == 0, elements += batch * m * n;
  }
  set_num_threads(threads_before);
  CHECK(products == 2000);
  CHECK(empty > 20);
  MESSAGE(products, " of 2000 products exact, ", empty, " shapes with nothing to add, ", elements,
          " sums of each dtype");
}

TEST_CASE("ones sum to their number, rounded once, beside the powers at which a half would stop") {
  // 257 is no bfloat16, 2049 no half, and 65,537 beyond half's largest number.
  for (const int64_t k : {255, 256, 257, 2047, 2048, 2049, 65537}) {
    CAPTURE(k);
    for (const Dtype d : kFloats) {
      CAPTURE(d);
      const Array y({3, 5}, d, kCPU), wide({3, 5}, kFloat32, kCPU);
      const Array a = full({3, k}, 1, d, kCPU), b = full({k, 5}, 1, d, kCPU);
      const std::vector<int64_t> sums(15, k);
      cpu_backend().gemm({.d = y, .a = a, .b = b});
      CHECK(same_bits(y, rounded(sums, {3, 5}, d)));
      if (!is_16bit(d)) continue;
      cpu_backend().gemm({.d = wide, .a = a, .b = b});
      CHECK(same_bits(wide, rounded(sums, {3, 5}, kFloat32)));
    }
  }
}
