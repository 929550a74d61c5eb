// Copies on the GPU give the CPU's bits and touch nothing else: rows, transposes, gaps, dimensions
// that run backwards or repeat, and addresses that are not aligned.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "on_gpu.h"

#include "halftape/tests/support/dtypes.h"

using namespace halftape;
using namespace halftape::testing;

namespace {

struct ViewDice {
  std::mt19937_64 bits;
  int64_t below(int64_t n) { return static_cast<int64_t>(bits() % static_cast<uint64_t>(n)); }

  /// A view of `shape` in an array of random numbers. `shared`: dimensions may repeat elements.
  Array view(const Shape& shape, Dtype dtype, bool shared) {
    const int rank = shape.size();
    Dims order;
    for (int d = 0; d < rank; ++d) order.push_back(d);
    if (below(2)) std::shuffle(order.begin(), order.end(), bits);
    Strides strides = Dims::filled(rank, 0);
    int64_t next = 1, first = below(3) == 0 ? 1 : 0;
    for (int i = rank - 1; i >= 0; --i) {
      const int d = static_cast<int>(order[i]);
      if (shared && below(8) == 0) continue;
      next *= below(6) == 0 ? 2 : 1;
      strides[d] = next;
      next = next * shape[d] + (below(4) == 0 ? 3 : 0);
      if (below(10) == 0) {
        first += strides[d] * (shape[d] - 1);
        strides[d] = -strides[d];
      }
    }
    const Array whole({next + 64}, dtype, kCPU), numbers({whole.numel()}, kInt64, kCPU);
    cpu_backend().random(numbers, Distribution::Bits, dtype == kBool || dtype == kUInt8 ? 0 : -99,
                         dtype == kBool ? 1 : 98, {.seed = bits(), .offset = 0});
    cpu_backend().copy(whole, numbers);
    return whole.as_strided(shape, strides, first);
  }
};

}  // namespace

TEST_CASE("copies between any strides and dtypes are the CPU's") {
  ViewDice dice{};
  const int64_t sizes[] = {1, 2, 3, 5, 7, 8, 9, 16, 24, 31, 33, 40, 70};
  for (int i = 0; i < 1500; ++i) {
    Shape shape;
    for (int64_t d = dice.below(5); d >= 0 && numel(shape) < 6000; --d)
      shape.push_back(sizes[dice.below(13)]);
    const Dtype from = kMostDtypes[dice.below(8)],
                to = dice.below(3) ? from : kMostDtypes[dice.below(8)];
    const Array x = dice.view(shape, from, true), y = dice.view(shape, to, false);
    CAPTURE(i);
    CAPTURE(shape);
    CAPTURE(x.strides());
    CAPTURE(y.strides());
    CAPTURE(from);
    CAPTURE(to);
    const Array there = on_gpu(y);
    backend(kCUDA).copy(there, on_gpu(x));
    cpu_backend().copy(y, x);
    CHECK(differ_on_gpu(there, y) == "");
  }
}

TEST_CASE("transposed matrices are copied, alone and in batches") {
  ViewDice dice{};
  for (const Dtype dtype : kMostDtypes)
    for (const Shape& shape : {Shape{64, 96}, Shape{33, 31}, Shape{8, 8}, Shape{3, 40, 65},
                               Shape{2, 9, 3, 34}, Shape{1, 100, 8}, Shape{200, 260}}) {
      CAPTURE(dtype);
      CAPTURE(shape);
      const Array x = dice.view(shape, dtype, false).clone();
      for (int d = 0; d + 1 < shape.size(); ++d) {
        const Array turned = x.transpose(d, shape.size() - 1);
        const Array y = full(turned.shape(), 0, dtype, kCPU), there = on_gpu(y);
        backend(kCUDA).copy(there, on_gpu(x).transpose(d, shape.size() - 1));
        cpu_backend().copy(y, turned);
        CHECK(differ_on_gpu(there, y) == "");
      }
    }
}
