// Gather and scatter on the GPU give the CPU's bits and errors, whatever the layouts.
#include <doctest/doctest.h>

#include <random>
#include <vector>

#include "halftape/core/formula/reduce.h"
#include "halftape/tests/support/dtypes.h"
#include "halftape/tests/support/message.h"
#include "on_gpu.h"

using namespace halftape;
using namespace halftape::testing;

namespace {

/// Random layouts, sizes and numbers; the same in every run.
struct LayoutDice {
  std::mt19937_64 bits;
  explicit LayoutDice(uint64_t seed) : bits(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(bits() % static_cast<uint64_t>(n)); }
  bool one_in(int64_t n) { return below(n) == 0; }

  /// An array of random small numbers in one of many layouts: dimensions swapped, slices of larger
  /// ones, not at the beginning of their buffer.
  Array array(const Shape& shape, Dtype d, int64_t low = -9, int64_t high = 10) {
    Dims order;
    for (int i = 0; i < shape.size(); ++i) order.push_back(i);
    if (one_in(2) && shape.size() > 1) std::shuffle(order.begin(), order.end(), bits);
    Shape stored;
    Dims back = order;
    for (int i = 0; i < shape.size(); ++i) {
      stored.push_back(shape[static_cast<int>(order[i])]);
      back[static_cast<int>(order[i])] = i;
    }
    const int64_t step = one_in(4) ? 2 : 1, begin = one_in(3) ? below(9) : 0;
    Shape larger = stored;
    if (!larger.empty()) larger[larger.size() - 1] = larger.back() * step + begin;
    Array a(larger, d, kCPU);
    const Array flat = Array(a.buffer(), {a.numel()}, {1}, 0, d);
    if (a.numel() > 0) {
      const Array numbers({a.numel()}, kInt64, kCPU);
      for (int64_t i = 0; i < a.numel(); ++i)
        numbers.data<int64_t>()[i] = d == kUInt8 ? below(9) : low + below(high - low);
      cpu_backend().copy(flat, numbers);
      if (is_floating_point(d)) {  // digits that rounding loses
        const Array fine({a.numel()}, kFloat64, kCPU);
        for (int64_t i = 0; i < a.numel(); ++i)
          fine.data<double>()[i] = static_cast<double>(numbers.data<int64_t>()[i]) +
                                   static_cast<double>(below(997)) / 997;
        cpu_backend().copy(flat, fine);
      }
    }
    if (!larger.empty()) a = a.slice(a.dim() - 1, begin, begin + stored.back() * step, step);
    return a.permute(back);
  }

  /// Random positions below n; expanded along some dimensions.
  Array index(const Shape& shape, int64_t n, int64_t low = 0) {
    Shape own = shape;
    const int64_t how = below(4);
    for (int d = 0; d < shape.size(); ++d)
      if (how == 1 ? one_in(2) : how == 2 ? d > 0 : how == 3 && one_in(6)) own[d] = 1;
    const Array a = array(own, kInt64, low, n);
    return a.expand(shape);
  }
};

/// A call on the GPU, and its error.
std::string message_of_gpu(const std::function<void()>& f) {
  return message([&] {
    f();
    backend(kCUDA).synchronize();
  });
}

/// Random x, index, and y of the index's shape.
struct IndexCase {
  int dim;
  Array far, near, index;
  explicit IndexCase(LayoutDice& dice, Dtype d) {
    Shape shape;
    const int rank = 1 + static_cast<int>(dice.below(4));
    for (int i = 0; i < rank; ++i) shape.push_back(dice.one_in(20) ? 0 : 1 + dice.below(7));
    if (dice.one_in(3)) shape[rank - 1] = 16 * (1 + dice.below(3));  // rows of whole packs
    dim = static_cast<int>(dice.below(rank));
    Shape full = shape;
    full[dim] = 1 + dice.below(9);
    far = dice.array(full, d);
    near = dice.array(shape, d);
    index = dice.index(shape, full[dim]);
  }
};

}  // namespace

TEST_CASE("gather and scatter on the GPU give the CPU's bits for every dtype and layout") {
  LayoutDice dice(1);
  for (int i = 0; i < 400; ++i) {
    CAPTURE(i);
    const Dtype d = kMostDtypes[static_cast<size_t>(i) % std::size(kMostDtypes)];
    const IndexCase c(dice, d);
    CAPTURE(d);
    CAPTURE(c.index.shape());
    const Array index = on_gpu(c.index), far = on_gpu(c.far), near = on_gpu(c.near);
    const Array gathered = on_gpu(c.near), expected = twin(c.near);
    backend(kCUDA).gather(gathered, far, c.dim, index);
    cpu_backend().gather(expected, c.far, c.dim, c.index);
    CHECK(differ_on_gpu(gathered, expected) == "");

    backend(kCUDA).scatter(far, near, c.dim, index);
    cpu_backend().scatter(c.far, c.near, c.dim, c.index);
    CHECK(differ_on_gpu(far, c.far) == "");
  }
}

TEST_CASE("scatter_reduce on the GPU takes elements in their order, and rounds once") {
  LayoutDice dice(2);
  for (int i = 0; i < 600; ++i) {
    CAPTURE(i);
    const Dtype d = kMostDtypes[static_cast<size_t>(i) % std::size(kMostDtypes)];
    const OpId op = static_cast<OpId>(dice.below(ReduceOps::size));
    IndexCase c(dice, d);
    if (dice.one_in(5)) c.near = c.near.to(kMostDtypes[static_cast<size_t>(dice.below(8))]);
    CAPTURE(d);
    CAPTURE(op);
    CAPTURE(c.index.shape());
    const Array far = on_gpu(c.far);
    backend(kCUDA).scatter_reduce(op, far, on_gpu(c.near), c.dim, on_gpu(c.index));
    cpu_backend().scatter_reduce(op, c.far, c.near, c.dim, c.index);
    CHECK(differ_on_gpu(far, c.far) == "");
  }
}

TEST_CASE("scatter_reduce on the GPU keeps a NaN, and sums many equal positions as the CPU does") {
  LayoutDice dice(3);
  for (const Dtype d : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
    CAPTURE(d);
    const Array far = dice.array({5, 33}, d), near = dice.array({500, 33}, d);
    const Array index = dice.array({500, 1}, kInt64, 0, 4).expand({500, 33});
    cpu_backend().fill(near.slice(0, 77, 78).slice(1, 3, 4), std::nan(""));
    for (OpId op = 0; op < static_cast<OpId>(ReduceOps::size); ++op) {
      const Array y = on_gpu(far), expected = twin(far);
      backend(kCUDA).scatter_reduce(op, y, on_gpu(near), 0, on_gpu(index));
      cpu_backend().scatter_reduce(op, expected, near, 0, index);
      CHECK(differ_on_gpu(y, expected) == "");
    }
  }
}

TEST_CASE("rows of an embedding are gathered and their gradients summed, aligned or not") {
  LayoutDice dice(4);
  for (const Dtype d : {kFloat16, kFloat32, kFloat64}) {
    for (const int64_t width : {1, 5, 64, 300}) {
      for (const int64_t offset : {0, 1}) {
        CAPTURE(d);
        CAPTURE(width);
        CAPTURE(offset);
        const Array table = dice.array({11, width + offset}, d).slice(1, offset, offset + width);
        const Array tokens = dice.array({3, 7, 1}, kInt64, 0, 11).expand({3, 7, width});
        const Array wide = table.unsqueeze(0).expand({3, 11, width});
        const Array y({3, 7, width}, d, kCPU), there = on_gpu(y);
        backend(kCUDA).gather(there, on_gpu(wide), 1, on_gpu(tokens));
        cpu_backend().gather(y, wide, 1, tokens);
        CHECK(differ_on_gpu(there, y) == "");
        const Array flat =
            tokens.slice(2, 0, 1).to_contiguous().reshape({21, 1}).expand({21, width});
        const Array sums = on_gpu(table), rows = y.reshape({21, width});
        backend(kCUDA).scatter_add(sums, on_gpu(rows), 0, on_gpu(flat));
        cpu_backend().scatter_add(table, rows, 0, flat);
        CHECK(differ_on_gpu(sums, table) == "");
      }
    }
  }
}

TEST_CASE("an index out of range is told in the CPU's words at the next call, once") {
  LayoutDice dice(5);
  int told = 0;
  for (int i = 0; i < 120; ++i) {
    CAPTURE(i);
    IndexCase c(dice, kFloat32);
    if (c.index.numel() == 0) continue;
    Array at = c.index;  // a random element of the index
    for (int d = 0; d < at.dim(); ++d) {
      const int64_t j = dice.below(at.size(d));
      at = at.slice(d, j, j + 1);
    }
    const int64_t n = c.far.size(c.dim), bad = dice.one_in(2) ? n + dice.below(3) : -1;
    cpu_backend().fill(at, bad);
    const Array index = on_gpu(c.index), near = on_gpu(c.near), far = on_gpu(c.far);
    const IndexUse use{"embedding", "token"};
    const std::string expected =
        message([&] { cpu_backend().gather(twin(c.near), c.far, c.dim, c.index, use); });
    REQUIRE(expected != "");
    CHECK(message_of_gpu([&] { backend(kCUDA).gather(near, far, c.dim, index, use); }) == expected);
    CHECK(message_of_gpu([&] { backend(kCUDA).scatter(far, near, c.dim, index, use); }) ==
          expected);
    CHECK(message_of_gpu([&] { backend(kCUDA).scatter_add(far, near, c.dim, index, use); }) ==
          expected);
    CHECK(message([&] { backend(kCUDA).synchronize(); }) == "");
    ++told;
  }
  CHECK(told > 80);
}

TEST_CASE("what a bad index leads to stays as it is, and the rest is done") {
  const Array index({3}, kInt64, kCPU), x = full({4}, 7, kFloat32, kCPU);
  for (int64_t i = 0; i < 3; ++i) index.data<int64_t>()[i] = i == 1 ? 4 : i;
  const Array y = full({3}, 1, kFloat32, kCUDA);
  CHECK(message_of_gpu([&] { backend(kCUDA).gather(y, on_gpu(x), 0, on_gpu(index)); }) ==
        "gather: index 4 at position 1 is out of range [0, 4)");
  for (const auto add : {false, true}) {
    const Array z = full({4}, 1, kFloat32, kCUDA);
    CHECK(message_of_gpu([&] {
            if (add)
              backend(kCUDA).scatter_add(z, y, 0, on_gpu(index));
            else
              backend(kCUDA).scatter(z, full({3}, 5, kFloat32, kCUDA), 0, on_gpu(index));
          }) != "");
    const Array back = on_cpu(z);
    const float* v = back.data<float>();
    CHECK(v[1] == 1);
    CHECK(v[3] == 1);
    // A sum has several kernels; the report of the first may end the call before the last.
    for (const int i : {0, 2}) CHECK((v[i] == (add ? 8 : 5) || (add && v[i] == 1)));
  }
  const Array back = on_cpu(y);
  CHECK(back.data<float>()[0] == 7);
  CHECK(back.data<float>()[1] == 1);
  CHECK(back.data<float>()[2] == 7);
}

TEST_CASE("an empty index reads nothing, and nothing is in range of an empty tensor") {
  const Array none({0, 3}, kFloat32, kCPU), zeros = full({1, 1}, 0, kInt64, kCPU).expand({1, 3});
  const Array y = full({1, 3}, 1, kFloat32, kCPU);
  CHECK(message_of_gpu([&] { backend(kCUDA).gather(on_gpu(y), on_gpu(none), 0, on_gpu(zeros)); }) ==
        message([&] { cpu_backend().gather(y, none, 0, zeros); }));
  const Array nowhere({0, 3}, kInt64, kCPU);
  CHECK(message_of_gpu([&] {
          backend(kCUDA).gather(on_gpu(none), on_gpu(y), 0, on_gpu(nowhere));
          backend(kCUDA).scatter(on_gpu(y), on_gpu(none), 0, on_gpu(nowhere));
          backend(kCUDA).scatter_add(on_gpu(y), on_gpu(none), 0, on_gpu(nowhere));
          backend(kCUDA).flat_index(Array({0}, kInt64, kCUDA), {}, {}, {"index"});
        }) == "");
}

TEST_CASE("flat_index on the GPU counts from the end and checks each of its indices") {
  LayoutDice dice(6);
  for (int i = 0; i < 150; ++i) {
    CAPTURE(i);
    Shape shape, sizes;
    for (int64_t d = dice.below(4); d >= 0; --d) shape.push_back(1 + dice.below(6));
    std::vector<Array> indices, there;
    for (int64_t k = 1 + dice.below(3); k > 0; --k) {
      sizes.push_back(1 + dice.below(5));
      indices.push_back(dice.index(shape, sizes.back(), -sizes.back()));
      there.push_back(on_gpu(indices.back()));
    }
    const Array y({numel(shape)}, kInt64, kCPU), z = on_gpu(y);
    backend(kCUDA).flat_index(z, there, sizes, {"index"});
    cpu_backend().flat_index(y, indices, sizes, {"index"});
    CHECK(differ_on_gpu(z, y) == "");

    const size_t which = static_cast<size_t>(dice.below(sizes.size()));
    Array at = indices[which];
    for (int d = 0; d < at.dim(); ++d) {
      const int64_t j = dice.below(at.size(d));
      at = at.slice(d, j, j + 1);
    }
    const int64_t size = sizes[static_cast<int>(which)];
    cpu_backend().fill(at, dice.one_in(2) ? size : -size - 1);
    there[which] = on_gpu(indices[which]);
    CHECK(message_of_gpu([&] { backend(kCUDA).flat_index(z, there, sizes, {"index_put"}); }) ==
          message([&] { cpu_backend().flat_index(y, indices, sizes, {"index_put"}); }));
  }
}
