// Windows on the GPU give the CPU's bits, whatever the layouts.
#include <doctest/doctest.h>

#include <random>

#include "halftape/core/contract/windows.h"
#include "on_gpu.h"

using namespace halftape;
using namespace halftape::testing;

namespace {

struct WindowDice {
  std::mt19937_64 bits;
  int64_t below(int64_t n) { return static_cast<int64_t>(bits() % static_cast<uint64_t>(n)); }

  /// Random numbers, some equal and some NaN, in a layout that may be turned or have gaps.
  Array array(const Shape& shape, Dtype dtype) {
    const bool turned = below(3) == 0, gaps = below(3) == 0;
    Shape stored = shape;
    Dims back;
    for (int d = shape.size() - 1; d >= 0; --d) back.push_back(d);
    if (turned)
      for (int d = 0; d < shape.size(); ++d) stored[d] = shape[shape.size() - 1 - d];
    const int64_t last = stored.back();
    if (gaps) stored[stored.size() - 1] = 2 * last + 1;
    const Array whole(stored, dtype, kCPU), numbers({whole.numel()}, kFloat64, kCPU);
    for (int64_t i = 0; i < numbers.numel(); ++i)
      numbers.data<double>()[i] = is_floating_point(dtype) && below(40) == 0
                                      ? NAN
                                      : static_cast<double>(below(dtype == kUInt8 ? 9 : 200)) / 7;
    cpu_backend().copy(Array(whole.buffer(), {whole.numel()}, {1}, 0, dtype), numbers);
    const Array part = gaps ? whole.slice(whole.dim() - 1, 1, 2 * last + 1, 2) : whole;
    return turned ? part.permute(back) : part;
  }
};

struct WindowCase {
  Windows w;
  Shape lead, lengths, count;
  explicit WindowCase(WindowDice& dice) {
    const int n = 1 + static_cast<int>(dice.below(3));
    for (int i = 0; i < n; ++i) {
      w.size.push_back(1 + dice.below(3)), w.stride.push_back(1 + dice.below(3));
      w.dilation.push_back(dice.below(3)), w.padding.push_back(dice.below(3));
      lengths.push_back(std::max<int64_t>(1, w.span(i) - 2 * w.padding[i]) + dice.below(5));
      count.push_back((lengths[i] + 2 * w.padding[i] - w.span(i)) / w.stride[i] + 1);
    }
    for (int64_t d = dice.below(3); d > 0; --d)
      lead.push_back(dice.below(12) == 0 ? 0 : 1 + dice.below(5));
  }
  static Shape joined(Shape a, const Shape& b) {
    for (int64_t n : b) a.push_back(n);
    return a;
  }
};

constexpr Dtype kDtypes[] = {kFloat32, kFloat64, kFloat16, kBFloat16, kInt64, kUInt8};

}  // namespace

TEST_CASE("unfold on the GPU gives the CPU's bits") {
  WindowDice dice{};
  for (int i = 0; i < 400; ++i) {
    WindowCase c(dice);
    if (i % 4 == 0) c.lengths[c.lengths.size() - 1] += 30, c.count[c.count.size() - 1] = 16;
    CAPTURE(i);
    const Dtype dtype = kDtypes[dice.below(6)];
    const Array x = dice.array(WindowCase::joined(c.lead, c.lengths), dtype);
    const Array y =
        dice.array(WindowCase::joined(WindowCase::joined(c.lead, c.w.size), c.count), dtype);
    const Array there = on_gpu(y);
    backend(kCUDA).unfold(there, on_gpu(x), c.w);
    cpu_backend().unfold(y, x, c.w);
    CHECK(differ_on_gpu(there, y) == "");
  }
}

TEST_CASE("unfold finds positions that do not fit 32 bits") {
  const int64_t far = (int64_t{1} << 32) + 1;
  WindowDice dice{};
  for (const Dtype dtype : kDtypes) {
    const Array x = dice.array({3, 5}, dtype);
    const auto rows = [&](const Windows& w, const Shape& shape) {
      const Array y(shape, dtype, kCUDA);
      backend(kCUDA).unfold(y, on_gpu(x), w);
      return y.to(kCPU).to(kFloat64);
    };
    // The second element of a window lies beyond the end; then the first lies before the beginning.
    const Array ends = rows({2, 1, far, 0}, {3, 2, 5}), starts = rows({2, 1, far, far}, {3, 2, 5});
    const Array given = x.to(kFloat64).clone();
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t j = 0; j < 5; ++j) {
        const double v = given.data<double>()[i * 5 + j];
        const auto same = [](double a, double b) { return a == b || (a != a && b != b); };
        CHECK(same(ends.data<double>()[(i * 2) * 5 + j], v));
        CHECK(ends.data<double>()[(i * 2 + 1) * 5 + j] == 0);
        CHECK(starts.data<double>()[(i * 2) * 5 + j] == 0);
        CHECK(same(starts.data<double>()[(i * 2 + 1) * 5 + j], v));
      }
  }
}

TEST_CASE("fold on the GPU gives the CPU's bits") {
  WindowDice dice{};
  for (int i = 0; i < 400; ++i) {
    const WindowCase c(dice);
    CAPTURE(i);
    const Dtype from = kDtypes[dice.below(6)];
    const Dtype to = is_floating_point(from) ? kDtypes[dice.below(4)] : from;
    const Array g =
        dice.array(WindowCase::joined(WindowCase::joined(c.lead, c.w.size), c.count), from);
    const Array y = dice.array(WindowCase::joined(c.lead, c.lengths), to);
    const Array there = on_gpu(y);
    backend(kCUDA).fold(there, on_gpu(g), c.w);
    cpu_backend().fold(y, g, c.w);
    CHECK(differ_on_gpu(there, y) == "");
  }
}

TEST_CASE("the largest elements of windows are where the CPU finds them") {
  WindowDice dice{};
  for (int i = 0; i < 400; ++i) {
    const WindowCase c(dice);
    CAPTURE(i);
    const Array x = dice.array(WindowCase::joined(c.lead, c.lengths), kDtypes[dice.below(6)]);
    const Array y = dice.array(WindowCase::joined(c.lead, c.count), kInt64);
    const Array there = on_gpu(y);
    backend(kCUDA).argmax_windows(there, on_gpu(x), c.w);
    cpu_backend().argmax_windows(y, x, c.w);
    CHECK(differ_on_gpu(there, y) == "");
  }
}
