// Reductions: how exact sums are, who wins a maximum, and what nothing reduces to.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "halftape/core/contract/backend.h"
#include "halftape/core/formula/reduce.h"
#include "halftape/tests/support/arrays.h"
#include "halftape/tests/support/dtypes.h"
#include "halftape/tests/support/nonfinite.h"

using namespace halftape;
using testing::array_of, testing::set, testing::values;
using testing::kFloats;
using testing::kInf, testing::kNaN;

namespace {

template <class Op>
Array reduce(const Array& x, const Dims& dims, Dtype to) {
  Array y(reduced_shape(x.shape(), dims, false), to, kCPU);
  cpu_backend().reduce(ReduceOps::index<Op>(), y, x, dims);
  return y;
}
template <class Op>
double reduce(const Array& x, Dtype to) {
  Dims all;
  for (int d = 0; d < x.dim(); ++d) all.push_back(d);
  return read_double(reduce<Op>(x, all, to));
}
int64_t argmax(const Array& x) {
  const Array y({}, kInt64, kCPU);
  cpu_backend().argmax(y, x, 0);
  return read_int64(y);
}

}  // namespace

// A tenth is the hard case: all terms are equal, so that the roundings of a chain of additions go
// the same way. Chains are 128 long whatever the count, so the bound does not grow with it.
TEST_CASE("sums of up to ten million tenths are right to some units in the last place") {
  for (const int64_t n : {1000, 100003, 1000000, 9999991}) {
    CAPTURE(n);
    const double exact = static_cast<double>(n) * static_cast<double>(0.1f);
    const double unit = std::ldexp(epsilon(kFloat32), std::ilogb(exact));
    CHECK(std::abs(reduce<formula::Sum>(full({n}, 0.1, kFloat32, kCPU), kFloat32) - exact) <=
          20 * unit);
  }
}

TEST_CASE("sums of a million tenths down a column are as good as along a row") {
  for (const int64_t n : {1000, 100003, 999999}) {
    CAPTURE(n);
    const double exact = static_cast<double>(n) * static_cast<double>(0.1f);
    const double unit = std::ldexp(epsilon(kFloat32), std::ilogb(exact));
    const Array x = full({n, 3}, 0.1, kFloat32, kCPU);
    CHECK(std::abs(values(reduce<formula::Sum>(x, {0}, kFloat32))[0] - exact) <= 20 * unit);
  }
}

TEST_CASE("sums of random numbers err by a few units of the sum of their sizes") {
  const Array x({1000003}, kFloat32, kCPU);
  cpu_backend().random(x, Distribution::Normal, 0, 1, {.seed = 3, .offset = 0});
  long double exact = 0, size = 0;
  for (const double v : values(x)) exact += v, size += std::abs(v);
  CHECK(std::abs(reduce<formula::Sum>(x, kFloat32) - static_cast<double>(exact)) <=
        4 * epsilon(kFloat32) * static_cast<double>(size));
  CHECK(std::abs(reduce<formula::Sum>(x.to(kFloat64), kFloat64) - static_cast<double>(exact)) <=
        16 * epsilon(kFloat64) * static_cast<double>(size));
}

TEST_CASE("a sum of halves is exact before it is rounded, and rounded once") {
  for (const int64_t n : {2049, 4095, 10000, 65503}) {
    CAPTURE(n);
    const Array x = full({n}, 1, kFloat16, kCPU);
    CHECK(reduce<formula::Sum>(x, kFloat32) == static_cast<double>(n));
    CHECK(reduce<formula::Sum>(x, kFloat16) == static_cast<double>(Half(static_cast<double>(n))));
    CHECK(reduce<formula::Sum>(x.to(kBFloat16), kFloat32) == static_cast<double>(n));
  }
  CHECK(reduce<formula::Sum>(full({65536}, 1, kFloat16, kCPU), kFloat16) == kInf);
  // On the way the sum leaves half's range and comes back.
  const Array x = full({2, 3}, 60000, kFloat16, kCPU);
  cpu_backend().fill(x.select(0, 1), -60000);
  CHECK(reduce<formula::Sum>(x, kFloat16) == 0);
}

TEST_CASE("16-bit numbers are summed down any number of rows and columns") {
  for (const Dtype d : {kFloat16, kBFloat16}) {
    for (const int64_t rows : {1, 7, 8, 9, 130, 300}) {
      for (const int64_t columns : {1, 10, 32, 64, 65, 96}) {
        CAPTURE(d);
        CAPTURE(rows);
        CAPTURE(columns);
        const Array x({rows, columns}, kFloat32, kCPU);
        std::vector<double> sums(static_cast<size_t>(columns), 0);
        for (int64_t i = 0; i < x.numel(); ++i) {
          x.data<float>()[i] = static_cast<float>(i * 31 % 127);
          sums[static_cast<size_t>(i % columns)] += static_cast<double>(i * 31 % 127);
        }
        CHECK(values(reduce<formula::Sum>(x.to(d), {0}, kFloat32)) == sums);
      }
    }
  }
}

TEST_CASE("integers and bools are summed exactly in 64 bits") {
  CHECK(reduce<formula::Sum>(full({100003}, 255, kUInt8, kCPU), kInt64) == 255.0 * 100003);
  CHECK(reduce<formula::Sum>(full({100003}, true, kBool, kCPU), kInt64) == 100003);
  const Array x = array_of<int64_t>({(int64_t{1} << 60) + 1, int64_t{1} << 60, -5});
  CHECK(read_int64(reduce<formula::Sum>(x, {0}, kInt64)) == (int64_t{1} << 61) - 4);
  CHECK(reduce<formula::Sum>(full({4}, 0x7fffffff, kInt32, kCPU), kInt64) == 4.0 * 0x7fffffff);
  CHECK(read_int64(reduce<formula::Max>(x, {0}, kInt64)) == (int64_t{1} << 60) + 1);
  CHECK(read_int64(reduce<formula::Min>(x, {0}, kInt64)) == -5);
}

TEST_CASE("every element counts once, wherever it stands") {
  for (const int64_t n : {1, 7, 31, 32, 33, 1000, 4096, 4097, 12289}) {
    CAPTURE(n);
    const Array x = full({n}, 0, kFloat32, kCPU);
    int64_t wrong = 0;
    for (int64_t i = 0; i < n; i += 1 + n / 61) {
      set(x, i, 3);
      wrong += reduce<formula::Sum>(x, kFloat32) != 3 || reduce<formula::Max>(x, kFloat32) != 3 ||
               argmax(x) != i;
      set(x, i, -3);
      wrong += reduce<formula::Sum>(x, kFloat32) != -3 || reduce<formula::Min>(x, kFloat32) != -3;
      set(x, i, 0);
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("reductions of any dimensions agree with plain loops") {
  const Shape s{3, 5, 4};
  const Array x(s, kFloat32, kCPU);
  for (int64_t i = 0; i < 60; ++i) x.data<float>()[i] = static_cast<float>((i * 37) % 61);
  for (const Dims& dims :
       {Dims{0}, Dims{1}, Dims{2}, Dims{0, 1}, Dims{0, 2}, Dims{1, 2}, Dims{0, 1, 2}, Dims{}}) {
    CAPTURE(dims);
    const Shape kept = reduced_shape(s, dims, true);
    std::vector<double> sum(static_cast<size_t>(numel(kept)), 0), most(sum.size(), -kInf),
        least(sum.size(), kInf);
    for (int64_t i = 0; i < 60; ++i) {
      const int64_t at[] = {i / 20, i / 4 % 5, i % 4};
      int64_t to = 0;
      for (int d = 0; d < 3; ++d) to = to * kept[d] + (kept[d] == 1 ? 0 : at[d]);
      const auto v = static_cast<double>(x.data<float>()[i]);
      const auto j = static_cast<size_t>(to);
      sum[j] += v, most[j] = std::max(most[j], v), least[j] = std::min(least[j], v);
    }
    CHECK(values(reduce<formula::Sum>(x, dims, kFloat32)) == sum);
    CHECK(values(reduce<formula::Max>(x, dims, kFloat32)) == most);
    CHECK(values(reduce<formula::Min>(x, dims, kFloat32)) == least);
  }
}

TEST_CASE("NaN wins every maximum and minimum, wherever it stands, and infinities take part") {
  for (const Dtype d : kFloats) {
    CAPTURE(d);
    for (const int64_t n : {1, 33, 5000}) {
      for (const int64_t i : {int64_t{0}, n / 2, n - 1}) {
        const Array x = full({n}, 1, d, kCPU), columns = full({n, 3}, 1, d, kCPU);
        set(x, i, kNaN);
        CHECK(std::isnan(reduce<formula::Max>(x, d)));
        CHECK(std::isnan(reduce<formula::Min>(x, d)));
        CHECK(std::isnan(reduce<formula::Sum>(x, d)));
        CHECK(argmax(x) == i);
        set(columns.select(1, 1), i, kNaN);
        const auto down = values(reduce<formula::Max>(columns, {0}, d));
        CHECK(down[0] == 1);
        CHECK(std::isnan(down[1]));
        CHECK(down[2] == 1);
        set(x, i, -kInf);
        CHECK(reduce<formula::Min>(x, d) == -kInf);
        CHECK(reduce<formula::Max>(x, d) == (n == 1 ? -kInf : 1));
        set(x, i, kInf);
        CHECK(reduce<formula::Max>(x, d) == kInf);
        CHECK(argmax(x) == i);
      }
    }
  }
}

TEST_CASE("argmax names the first of equals and the first NaN") {
  CHECK(argmax(array_of<float>({1, 3, 3, 2, 3})) == 1);
  CHECK(argmax(full({1000}, -kInf, kFloat16, kCPU)) == 0);
  const auto nan = static_cast<float>(kNaN);
  CHECK(argmax(array_of<float>({1, nan, 9, nan})) == 1);
  CHECK(argmax(array_of<float>({static_cast<float>(kInf), nan})) == 1);
  CHECK(argmax(array_of<float>({-0.0f, 0.0f})) == 0);
  CHECK(argmax(array_of<int32_t>({-7, -3, -5})) == 1);
  const Array rows = array_of<float>({1, 5, 2, 9, 0, 3}).reshape({2, 3}), y({3}, kInt64, kCPU);
  cpu_backend().argmax(y, rows, 0);
  CHECK(values(y) == std::vector<double>{1, 0, 1});
}

TEST_CASE("argmax tells 64-bit integers apart that double cannot") {
  CHECK(argmax(array_of<int64_t>({int64_t{1} << 53, (int64_t{1} << 53) + 1})) == 1);
  CHECK(argmax(array_of<int64_t>({0, 0x7ffffffffffffffe, 0x7fffffffffffffff})) == 2);
}

TEST_CASE("nothing sums to 0, and its maximum is where a maximum starts") {
  for (const Dtype d : kFloats) {
    const Array none({0}, d, kCPU), flat({3, 0, 2}, d, kCPU);
    CHECK(reduce<formula::Sum>(none, d) == 0);
    CHECK(reduce<formula::Max>(none, d) == -kInf);
    CHECK(reduce<formula::Min>(none, d) == kInf);
    CHECK(values(reduce<formula::Sum>(flat, {1}, d)) == std::vector<double>(6, 0));
    CHECK(values(reduce<formula::Sum>(flat, {0, 1}, d)) == std::vector<double>(2, 0));
    CHECK(reduce<formula::Sum>(flat, {0}, d).numel() == 0);
    CHECK(reduce<formula::Sum>(flat, d) == 0);
  }
  CHECK(reduce<formula::Sum>(Array({0}, kBool, kCPU), kInt64) == 0);
}
