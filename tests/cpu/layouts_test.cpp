// Kernels work in whole chunks where memory allows it: they give the bits of the plain formula for
// every length, place in memory and layout, wherever a NaN is.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "halftape/core/contract/backend.h"
#include "halftape/core/formula/binary.h"
#include "halftape/core/formula/reduce.h"
#include "halftape/core/formula/unary.h"

using namespace halftape;

namespace {

const std::vector<int64_t> lengths = {0, 1, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 257, 513, 4097};
const std::vector<Dtype> kNarrowFloats = {kFloat16, kBFloat16, kFloat32};

/// Normal numbers, with zeros of both signs, infinities and NaNs of both signs among them if wild.
Array numbers(const Shape& shape, Dtype d, uint64_t seed, bool wild) {
  const Array x(shape, kFloat32, kCPU);
  cpu_backend().random(x, Distribution::Normal, 0, 1, {.seed = seed, .offset = 0});
  constexpr float inf = std::numeric_limits<float>::infinity(),
                  nan = std::numeric_limits<float>::quiet_NaN();
  const float odd[] = {0.f, -0.f, inf, -inf, nan, -nan};
  if (wild)
    for (int64_t i = static_cast<int64_t>(seed % 7); i < x.numel(); i += 11)
      x.data<float>()[i] = odd[static_cast<size_t>(i) % std::size(odd)];
  return x.to(d);
}
std::vector<float> plain(const Array& a) {
  const Array same = a.to(kFloat32).to_contiguous();
  return {same.data<float>(), same.data<float>() + same.numel()};
}
/// How many elements of y have other bits than these numbers, rounded.
int64_t wrong(const Array& y, const std::vector<float>& expected) {
  REQUIRE(y.numel() == static_cast<int64_t>(expected.size()));
  const Array same = y.to_contiguous();
  int64_t count = 0;
  visit(y.dtype(), [&](auto t) {
    using T = typename decltype(t)::type;
    for (size_t i = 0; i < expected.size(); ++i) {
      const T right = convert<T>(expected[i]);
      count += std::memcmp(&right, same.data<T>() + i, sizeof right) != 0;
    }
  });
  return count;
}

/// Arrays of n columns: as they are, a few elements into their memory, every second element, one
/// row or one column for all, and transposed.
std::vector<Array> layouts(int64_t rows, int64_t n, Dtype d, uint64_t seed, bool wild) {
  const auto fresh = [&](const Shape& shape) { return numbers(shape, d, seed++, wild); };
  return {fresh({rows, n}),
          fresh({rows * n + 3}).slice(0, 3, rows * n + 3).reshape({rows, n}),
          fresh({rows, n + 5}).slice(1, 5, n + 5),
          fresh({rows, 2 * n}).slice(1, 0, 2 * n, 2),
          fresh({n}).expand({rows, n}),
          fresh({rows, 1}).expand({rows, n}),
          fresh({n, rows}).transpose(0, 1)};
}

/// A reduction in the documented order: 32 running results for each 4096 elements, joined as a tree
/// of halves, and pairs of neighbours.
template <class Op>
float reduced(const float* x, int64_t n) {
  std::vector<float> blocks;
  for (int64_t begin = 0; begin == 0 || begin < n; begin += 4096) {
    float acc[32];
    std::fill_n(acc, 32, Op::template start<float>());
    for (int64_t i = begin; i < std::min(n, begin + 4096); ++i)
      acc[i % 32] = Op::step(acc[i % 32], x[i]);
    for (int half = 16; half > 0; half /= 2)
      for (int k = 0; k < half; ++k) acc[k] = Op::step(acc[k], acc[k + half]);
    blocks.push_back(acc[0]);
  }
  for (size_t count = blocks.size(); count > 1; count = (count + 1) / 2)
    for (size_t j = 0; j < (count + 1) / 2; ++j)
      blocks[j] = 2 * j + 1 < count ? Op::step(blocks[2 * j], blocks[2 * j + 1]) : blocks[2 * j];
  return blocks[0];
}
template <class Op>
void check_reduction(const Array& x) {
  const int64_t rows = x.size(0), n = x.size(1);
  const std::vector<float> all = plain(x);
  std::vector<float> expected;
  for (int64_t r = 0; r < rows; ++r) expected.push_back(reduced<Op>(all.data() + r * n, n));
  const Array y({rows}, kFloat32, kCPU);
  cpu_backend().reduce(ReduceOps::index<Op>(), y, x, {1});
  CAPTURE(Op::name);
  CHECK(wrong(y, expected) == 0);
}

/// Sums and maps of so many rows of n elements, in every pair of layouts.
void check_maps(int64_t rows, int64_t n, Dtype d) {
  CAPTURE(rows);
  CAPTURE(n);
  CAPTURE(d);
  // Without NaN: of two of them the processor chooses.
  const std::vector<Array> a = layouts(rows, n, d, 1, false), b = layouts(rows, n, d, 100, false);
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0; j < b.size(); ++j) {
      CAPTURE(i);
      CAPTURE(j);
      const Array y({rows, n}, d, kCPU);
      cpu_backend().binary(BinaryOps::index<formula::Add>(), y, a[i], b[j]);
      std::vector<float> expected = plain(a[i]);
      const std::vector<float> more = plain(b[j]);
      for (size_t k = 0; k < more.size(); ++k) expected[k] += more[k];
      CHECK(wrong(y, expected) == 0);
    }
  for (const Array& x : layouts(rows, n, d, 200, true)) {
    const Array y = Array({rows * n + 1}, d, kCPU).slice(0, 1, rows * n + 1).reshape({rows, n});
    cpu_backend().unary(UnaryOps::index<formula::Relu>(), y, x, {});
    std::vector<float> expected = plain(x);
    for (float& v : expected) v = v <= 0 ? 0 : v;
    CHECK(wrong(y, expected) == 0);
  }
}

}  // namespace

TEST_CASE("sums and maps of every layout have the bits of the plain formula") {
  for (const Dtype d : kNarrowFloats) {
    for (const int64_t n : lengths) check_maps(3, n, d);
    for (const int64_t n : {59, 64, 96, 256, 513}) check_maps(70, n, d);
  }
}

TEST_CASE("a row is added to each row of a part of a batch") {
  for (const int64_t n : {32, 64, 512}) {
    CAPTURE(n);
    const Array all = numbers({20, 100, n}, kFloat32, 1, false), x = all.slice(1, 3, 93),
                row = numbers({n}, kFloat32, 2, false), y({20, 90, n}, kFloat32, kCPU);
    cpu_backend().binary(BinaryOps::index<formula::Add>(), y, x, row.expand({20, 90, n}));
    std::vector<float> expected = plain(x);
    for (size_t i = 0; i < expected.size(); ++i)
      expected[i] += row.data<float>()[i % static_cast<size_t>(n)];
    CHECK(wrong(y, expected) == 0);
  }
}

TEST_CASE("a million elements are rounded to bfloat16 as one is, wherever a NaN is") {
  const int64_t n = 1000003;
  const Array x({n + 1}, kFloat32, kCPU);
  uint32_t word = 1;
  for (int64_t i = 0; i <= n; ++i) {
    word = word * 1664525 + 1013904223;  // any bits: one of 128 is NaN
    std::memcpy(x.data<float>() + i, &word, sizeof word);
  }
  for (const int64_t first : {0, 1})
    CHECK(wrong(x.slice(0, first, n).to(kBFloat16), plain(x.slice(0, first, n))) == 0);
}

TEST_CASE("reductions have the bits of the documented order, with NaN and without") {
  for (const Dtype d : kNarrowFloats)
    for (const bool wild : {false, true})
      for (const int64_t n : lengths) {
        if (n == 0) continue;
        CAPTURE(d);
        CAPTURE(n);
        CAPTURE(wild);
        for (const Array& x : layouts(3, n, d, 300, wild)) {
          check_reduction<formula::Max>(x);
          check_reduction<formula::Min>(x);
          if (!wild) check_reduction<formula::Sum>(x);  // of two NaNs the processor chooses
        }
      }
  check_reduction<formula::Sum>(numbers({1, 1000003}, kFloat32, 1, false));
}

TEST_CASE("one NaN at any place is found by a maximum, whatever its sign") {
  for (const int64_t n : {1, 31, 33, 100})
    for (int64_t at = 0; at < n; ++at)
      for (const float sign : {1.f, -1.f}) {
        const Array x = numbers({1, n}, kFloat32, 5, false);
        x.data<float>()[at] = std::copysign(std::numeric_limits<float>::quiet_NaN(), sign);
        check_reduction<formula::Max>(x);
        check_reduction<formula::Min>(x);
      }
}

TEST_CASE("a transposed copy moves every bit, for each size of an element") {
  for (const Dtype d : {kUInt8, kFloat16, kFloat32, kFloat64})
    for (const int64_t rows : {1, 8, 31, 32, 33, 64, 65, 100})
      for (const int64_t columns : {1, 8, 31, 32, 33, 64, 65, 97}) {
        CAPTURE(d);
        CAPTURE(rows);
        CAPTURE(columns);
        const auto item = static_cast<int64_t>(element_size(d));
        const Array x({rows * columns + 1}, d, kCPU);
        auto* bytes = static_cast<unsigned char*>(x.raw());
        for (int64_t i = 0; i < x.numel() * item; ++i)
          bytes[i] = static_cast<unsigned char>(i * 167 + i / 256);
        for (const int64_t first : {0, 1}) {
          const Array view = x.slice(0, first, first + rows * columns).reshape({rows, columns});
          const Array y = view.transpose(0, 1).to_contiguous();
          int64_t moved = 0;
          for (int64_t r = 0; r < rows; ++r)
            for (int64_t c = 0; c < columns; ++c)
              moved += std::memcmp(bytes + (first + r * columns + c) * item,
                                   static_cast<unsigned char*>(y.raw()) + (c * rows + r) * item,
                                   static_cast<size_t>(item)) == 0;
          CHECK(moved == rows * columns);
        }
      }
}

TEST_CASE("SGD without momentum is the plain formula, for every length and place") {
  for (const int64_t n : lengths)
    for (const int64_t first : {0, 1, 16}) {
      CAPTURE(n);
      CAPTURE(first);
      const auto part = [&](uint64_t seed) {
        return numbers({n + first}, kFloat32, seed, false).slice(0, first, n + first);
      };
      const Array param = part(1), grad = part(2);
      std::vector<float> expected = plain(param);
      const std::vector<float> g = plain(grad);
      for (size_t i = 0; i < g.size(); ++i) expected[i] -= 0.1f * (g[i] + 0.01f * expected[i]);
      UpdateSlot slot;
      slot.param = param, slot.grad = grad;
      cpu_backend().update({&slot, 1}, SgdRule{.lr = 0.1, .weight_decay = 0.01}, {});
      CHECK(wrong(param, expected) == 0);
    }
}
