// Softmax and orders on the GPU: as on the CPU, whatever the layout.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "layouts.h"

using namespace halftape;
using namespace halftape::testing::array_layouts;

TEST_CASE("gpu: softmax and its gradient are the CPU's, for rows of any length and layout") {
  for (int64_t length : {0, 1, 2, 8, 10, 65, 256, 257, 1000, 1024, 1025, 5000}) {
    for (Dtype dtype : kFloats) {
      const Array x = normal({2, 3, length}, dtype, 1), g = normal({2, 3, length}, dtype, 2);
      for (bool log : {false, true}) {
        const Array y = empty_like(x), dx = empty_like(x);
        cpu_backend().softmax(y, x, log);
        cpu_backend().softmax_grad(dx, g, y, log);
        Array first_y, first_dx;
        for (const Layouts& l : layouts_for(dtype)) {
          CAPTURE(length);
          CAPTURE(dtype);
          CAPTURE(log);
          CAPTURE(l.name);
          const Spaced out(x.shape(), dtype, kCUDA);
          gpu().softmax(out.y, l.lay(x.to(kCUDA)), log);
          CHECK(differ(out.y, y, {.ulps = 8}) == "");
          if (!first_y.defined()) first_y = out.y.to(kCPU);
          CHECK(differ(out.y, first_y) == "");
          out.check_neighbours();
          Array grad = l.lay(empty_like(dx.to(kCUDA)));
          gpu().softmax_grad(grad, l.lay(g.to(kCUDA)), y.to(kCUDA), log);
          CHECK(differ(grad, dx, {.ulps = 1, .eps = 8}) == "");
          if (!first_dx.defined()) first_dx = grad.to(kCPU);
          CHECK(differ(grad, first_dx) == "");
        }
      }
    }
  }
}

TEST_CASE("gpu: a block that works on one long row after the other keeps them apart") {
  const Array x = normal({70, 1100}, kFloat32, 1), g = normal({70, 1100}, kFloat32, 2);
  const Array y = empty_like(x), dx = empty_like(x);
  cpu_backend().softmax(y, x, false);
  cpu_backend().softmax_grad(dx, g, y, false);
  const Array there = y.to(kCUDA), grad = empty_like(there);
  gpu().softmax(there, x.to(kCUDA), false);
  CHECK(differ(there, y, {.ulps = 8}) == "");
  gpu().softmax_grad(grad, g.to(kCUDA), y.to(kCUDA), false);
  CHECK(differ(grad, dx, {.ulps = 1, .eps = 8}) == "");
}

TEST_CASE("gpu: softmax of infinities and NaN, in place, of a number, and of another dtype") {
  for (int64_t length : {9, 300, 1500}) {
    for (bool log : {false, true}) {
      Array x = normal({5, length}, kFloat32);
      cpu_backend().fill(x.select(0, 0), -kInf);
      cpu_backend().fill(x.slice(0, 1, 2).slice(1, 3, 4), kInf);
      cpu_backend().fill(x.slice(0, 2, 3).slice(1, 4, 5), kNaN);
      cpu_backend().fill(x.slice(0, 3, 4).slice(1, 1, length), -kInf);
      const Array y = empty_like(x), device = x.to(kCUDA);
      cpu_backend().softmax(y, x, log);
      gpu().softmax(device, device, log);
      CHECK(differ(device, y, {.ulps = 8}) == "");
      const Array half = empty_like(x, kFloat16), wide(x.shape(), kFloat16, kCUDA);
      cpu_backend().softmax(half, x, log);
      gpu().softmax(wide, x.to(kCUDA), log);
      CHECK(differ(wide, half, {.ulps = 1}) == "");
    }
  }
  const Array one = full({}, 3, kFloat32, kCUDA);
  gpu().softmax(one, one, false);
  CHECK(read_double(one) == 1);
}

namespace {

void check_order(const Array& host, int dim, int64_t wanted) {
  for (bool descending : {false, true}) {
    for (const Layouts& l : layouts_for(host.dtype())) {
      CAPTURE(host.shape());
      CAPTURE(host.dtype());
      CAPTURE(wanted);
      CAPTURE(l.name);
      CAPTURE(descending);
      Shape shape = host.shape();
      if (host.dim()) shape[dim] = wanted;
      const Array expected(shape, kInt64, kCPU);
      cpu_backend().argsort(expected, host, dim, descending);
      const Spaced y(shape, kInt64, kCUDA);
      gpu().argsort(y.y, l.lay(host.to(kCUDA)), dim, descending);
      CHECK(differ(y.y, expected) == "");
      y.check_neighbours();
    }
  }
}

}  // namespace

TEST_CASE("gpu: the order is stable both ways, whatever is sorted") {
  for (Dtype dtype : kMostDtypes) {
    const double low = dtype == kBool || dtype == kUInt8 ? 0 : -8;
    check_order(whole({7, 50}, dtype, low), 1, 50);
    check_order(whole({3, 1500}, dtype, low), 1, 1500);
    check_order(whole({70, 3}, dtype, low), 0, 5);
  }
  for (int64_t n : {1, 2, 3, 31, 32, 33, 64, 65, 1000, 1024, 1025, 2048, 2049, 5000}) {
    check_order(normal({2, n}, kFloat32), 1, n);
    check_order(whole({2, n}, kInt32), 1, (n + 1) / 2);
  }
  check_order(normal({2200, 65}, kFloat32), 1, 65);  // blocks of two warps take several lines
  check_order(full({}, 3, kFloat32, kCPU), 0, 1);
  check_order(Array({0, 4}, kFloat32, kCPU), 1, 4);
  check_order(Array({4, 3}, kFloat32, kCPU), 1, 0);
}

TEST_CASE("gpu: NaN is sorted as the greatest, zeros as equals, integers exactly") {
  for (Dtype dtype : kFloats) {
    Array x = whole({2, 1300}, dtype, -2, 3);
    for (int64_t i = 0; i < 1300; i += 7) cpu_backend().fill(x.slice(1, i, i + 1), -0.0);
    for (int64_t i = 3; i < 1300; i += 31) cpu_backend().fill(x.slice(1, i, i + 1), kNaN);
    for (int64_t i = 5; i < 1300; i += 101) cpu_backend().fill(x.slice(1, i, i + 1), kInf);
    for (int64_t i = 6; i < 1300; i += 101) cpu_backend().fill(x.slice(1, i, i + 1), -kInf);
    check_order(x, 1, 1300);
    check_order(x.slice(1, 0, 500).clone(), 1, 500);
  }
  Array edge({6}, kInt64, kCPU);
  const int64_t values[] = {INT64_MAX, INT64_MIN, (int64_t{1} << 60) + 1, int64_t{1} << 60, 0, -1};
  std::copy(std::begin(values), std::end(values), edge.data<int64_t>());
  check_order(edge, 0, 6);
}

TEST_CASE("gpu: the places of what is not zero are found in row-major order") {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{100}, Shape{1024}, Shape{5000},
                             Shape{3, 4, 5}, Shape{50, 60, 2}, Shape{0, 3}}) {
    for (Dtype dtype : kMostDtypes) {
      for (double most : {1.0, 2.0, 40.0}) {  // zeros alone, half of them, few of them
        const Array host = whole(shape, dtype, 0, most);
        for (const Layouts& l : layouts_for(dtype)) {
          CAPTURE(shape);
          CAPTURE(dtype);
          CAPTURE(most);
          CAPTURE(l.name);
          int64_t n = 0;
          for (double v : Tensor(host).to_vector()) n += v != 0;
          const Array expected({n, host.dim()}, kInt64, kCPU), y({n, host.dim()}, kInt64, kCUDA);
          cpu_backend().nonzero(expected, host);
          gpu().nonzero(y, l.lay(host.to(kCUDA)));
          CHECK(differ(y, expected) == "");
        }
      }
    }
  }
}
