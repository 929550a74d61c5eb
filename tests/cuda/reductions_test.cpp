// Reductions and running reductions on the GPU: as on the CPU, whatever the layout.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "layouts.h"

using namespace halftape;
using namespace halftape::testing::array_layouts;

namespace {

struct ReductionCase {
  Shape shape;
  Dims dims;
};
const std::vector<ReductionCase> reductions = {
    {{}, {}},
    {{1}, {0}},
    {{7}, {0}},
    {{33}, {0}},
    {{257}, {0}},
    {{1024}, {0}},
    {{1025}, {0}},
    {{40000}, {0}},
    {{5, 300}, {1}},
    {{5, 300}, {0}},
    {{300, 5}, {0}},
    {{70, 257}, {0}},
    {{70, 900}, {0}},  // more groups of outputs than the rig has blocks
    {{2100, 40}, {0}},
    {{2100, 40}, {1}},
    {{3, 4, 5, 6}, {}},
    {{3, 4, 5, 6}, {0, 2}},
    {{9, 4, 5, 6}, {1, 3}},
    {{9, 4, 5, 6}, {0, 1, 2, 3}},
    {{2, 3, 8, 16}, {0, 2, 3}},
    {{4, 3, 5, 7}, {0, 2, 3}},
    {{1500, 3, 2}, {0, 2}},
    {{3, 50, 33}, {1}},
};

Array reduced(Backend& on, OpId op, const Array& x, const Dims& dims, Dtype to) {
  Array y(reduced_shape(x.shape(), dims, false), to, x.device());
  on.reduce(op, y, x, dims);
  return y;
}

}  // namespace

TEST_CASE("gpu: whole numbers are reduced exactly, in every dtype, shape and layout") {
  for (const ReductionCase& c : reductions) {
    for (Dtype dtype : kMostDtypes) {
      const bool small = dtype == kBool || dtype == kUInt8;
      const Array host = whole(c.shape, dtype, small ? 0 : -8);
      for (const Layouts& l : layouts_for(dtype)) {
        CAPTURE(Tensor(host).sizes());
        CAPTURE(dtype);
        CAPTURE(l.name);
        const Array x = l.lay(host.to(kCUDA));
        for (OpId op : {kSumOp, kMaxOp, kMinOp}) {
          const Dtype to = op == kSumOp && !is_floating_point(dtype) ? kInt64 : dtype;
          CAPTURE(op);
          CHECK(differ(reduced(gpu(), op, x, c.dims, to),
                       reduced(cpu_backend(), op, host, c.dims, to)) == "");
        }
      }
    }
  }
}

TEST_CASE("gpu: products of powers of two are exact, and those of integers wrap") {
  for (const ReductionCase& c : reductions) {
    CAPTURE(c.shape);
    const Array power = signs(c.shape, kFloat64);
    for (Dtype dtype : {kFloat32, kFloat64})
      CHECK(differ(reduced(gpu(), kProdOp, power.to(dtype).to(kCUDA), c.dims, dtype),
                   reduced(cpu_backend(), kProdOp, power.to(dtype), c.dims, dtype)) == "");
    const Array odd = whole(c.shape, kInt64, 3, 9);
    CHECK(differ(reduced(gpu(), kProdOp, odd.to(kCUDA), c.dims, kInt64),
                 reduced(cpu_backend(), kProdOp, odd, c.dims, kInt64)) == "");
  }
}

TEST_CASE("gpu: the bits of a sum depend on its shape, not on its layout") {
  for (const ReductionCase& c : reductions) {
    for (Dtype dtype : kFloats) {
      const Array host = normal(c.shape, dtype), x = host.to(kCUDA);
      const Dtype to = dtype == kFloat64 ? kFloat64 : kFloat32;
      const Array first = reduced(gpu(), kSumOp, x, c.dims, to).to(kCPU);
      for (const Layouts& l : layouts) {
        CAPTURE(c.shape);
        CAPTURE(dtype);
        CAPTURE(l.name);
        CHECK(differ(reduced(gpu(), kSumOp, l.lay(x), c.dims, to), first) == "");
      }
      const Array exact = reduced(cpu_backend(), kSumOp, host.to(kFloat64), c.dims, kFloat64);
      const double typical = std::sqrt(static_cast<double>(host.numel()));
      CHECK(differ(Tensor(first), Tensor(exact), {.eps = 8, .scale = typical}) == "");
    }
  }
}

TEST_CASE("gpu: a long sum loses no more digits than its logarithm") {
  const Array x = full({1 << 20}, 0.1, kFloat32, kCUDA);
  const Array y = reduced(gpu(), kSumOp, x, {0}, kFloat32);
  const double exact = static_cast<double>(0.1f) * (1 << 20);
  CHECK(std::abs(read_double(y) - exact) < 4 * epsilon(kFloat32) * exact);
}

TEST_CASE("gpu: many short columns are reduced by threads of their own") {
  const Array x = whole({200, 16400}, kInt32);
  CHECK(differ(reduced(gpu(), kSumOp, x.to(kCUDA), {0}, kInt64),
               reduced(cpu_backend(), kSumOp, x, {0}, kInt64)) == "");
  const Array z = normal({200, 16400}, kFloat32), device = z.to(kCUDA);
  const Array lined_up = device.transpose(0, 1).clone().transpose(0, 1);  // by warps
  CHECK(differ(reduced(gpu(), kSumOp, device, {0}, kFloat32),
               reduced(gpu(), kSumOp, lined_up, {0}, kFloat32).to(kCPU)) == "");
}

TEST_CASE("gpu: a block that reduces one group of columns after the other keeps them apart") {
  // More groups of 32 columns than blocks: also on a device of few multiprocessors.
  const Array x = whole({300, 4000}, kFloat32, -1000, 1001);
  CHECK(differ(reduced(gpu(), kSumOp, x.to(kCUDA), {0}, kFloat32),
               reduced(cpu_backend(), kSumOp, x, {0}, kFloat32)) == "");
}

TEST_CASE("gpu: nothing reduces to where the reduction starts; NaN reduces to NaN") {
  for (Dtype dtype : kMostDtypes) {
    CAPTURE(dtype);
    for (OpId op : {kSumOp, kProdOp, kMaxOp, kMinOp}) {
      const Array x({0, 3}, dtype, kCPU);
      CHECK(differ(reduced(gpu(), op, x.to(kCUDA), {0}, dtype),
                   reduced(cpu_backend(), op, x, {0}, dtype)) == "");
      CHECK(reduced(gpu(), op, x.to(kCUDA), {1}, dtype).numel() == 0);
    }
  }
  for (Dtype dtype : kFloats) {
    for (int64_t at : {0, 1, 31, 700, 2999}) {
      Array x = normal({3000}, dtype);
      cpu_backend().fill(x.select(0, at), kNaN);
      for (OpId op : {kSumOp, kProdOp, kMaxOp, kMinOp})
        CHECK(std::isnan(read_double(reduced(gpu(), op, x.to(kCUDA), {0}, dtype))));
    }
  }
}

TEST_CASE("gpu: reductions convert, repeat what is expanded and write where they are told") {
  const Array x = whole({40, 70}, kFloat16), rows = whole({1, 70}, kFloat32);
  for (Dtype to : {kFloat64, kFloat16, kInt32}) {
    Spaced y({70}, to, kCUDA);
    gpu().reduce(kSumOp, y.y, x.to(kCUDA), {0});
    CHECK(differ(y.y, reduced(cpu_backend(), kSumOp, x, {0}, to)) == "");
    y.check_neighbours();
  }
  const Array wide = rows.to(kCUDA).expand({40, 70});
  CHECK(differ(reduced(gpu(), kSumOp, wide, {0}, kFloat32),
               reduced(cpu_backend(), kSumOp, rows.expand({40, 70}), {0}, kFloat32)) == "");
  CHECK(differ(reduced(gpu(), kSumOp, wide, {1}, kFloat32),
               reduced(cpu_backend(), kSumOp, rows.expand({40, 70}), {1}, kFloat32)) == "");
}

namespace {

void check_argument_of_extremum(const Array& host, int dim) {
  for (const Layouts& l : layouts_for(host.dtype())) {
    CAPTURE(host.shape());
    CAPTURE(host.dtype());
    CAPTURE(l.name);
    const Array x = l.lay(host.to(kCUDA));
    Shape left = host.dim() ? reduced_shape(host.shape(), {dim}, false) : Shape{};
    const Array expected(left, kInt64, kCPU);
    const Spaced y(left, kInt64, kCUDA);
    cpu_backend().argmax(expected, host, dim);
    gpu().argmax(y.y, x, dim);
    CHECK(differ(y.y, expected) == "");
    cpu_backend().argmin(expected, host, dim);
    gpu().argmin(y.y, x, dim);
    CHECK(differ(y.y, expected) == "");
    y.check_neighbours();
  }
}

}  // namespace

TEST_CASE("gpu: the first of equals is found, NaN before every number") {
  for (Dtype dtype : kMostDtypes) {
    const double low = dtype == kBool || dtype == kUInt8 ? 0 : -8;
    check_argument_of_extremum(whole({1}, dtype, low), 0);
    check_argument_of_extremum(whole({5000}, dtype, low), 0);
    check_argument_of_extremum(whole({60, 10}, dtype, low), 1);
    check_argument_of_extremum(whole({6, 100}, dtype, low), 1);
    check_argument_of_extremum(whole({3, 1100, 40}, dtype, low), 1);
    check_argument_of_extremum(whole({40, 33}, dtype, low), 0);
  }
  for (Dtype dtype : kFloats) {
    check_argument_of_extremum(normal({3, 3000}, dtype), 1);
    Array x = normal({3, 3000}, dtype);
    cpu_backend().fill(x.slice(1, 1700, 2500, 400), kNaN);
    cpu_backend().fill(x.slice(1, 5, 6), kInf);
    check_argument_of_extremum(x, 1);
    check_argument_of_extremum(full({3, 40}, -kInf, dtype, kCPU), 1);
  }
  const Array y({}, kInt64, kCUDA);
  gpu().argmax(y, full({}, 3, kFloat32, kCUDA), 0);
  CHECK(read_int64(y) == 0);
  Array close({3}, kInt64, kCPU);  // equal as doubles
  close.data<int64_t>()[0] = (int64_t{1} << 60) + 1;
  close.data<int64_t>()[1] = (int64_t{1} << 60) + 2;
  close.data<int64_t>()[2] = int64_t{1} << 60;
  check_argument_of_extremum(close, 0);
}

namespace {

Array scanned(OpId op, const Array& x, int dim, bool reverse, Dtype to) {
  const Array y = empty_like(x, to);
  backend(x.device()).scan(op, y, x, dim, reverse);
  return y;
}

}  // namespace

TEST_CASE("gpu: running reductions of whole numbers are exact in every dtype and layout") {
  const std::vector<std::pair<Shape, int>> cases = {
      {{}, 0},         {{1}, 0},          {{32}, 0},         {{33}, 0},     {{1024}, 0},
      {{1025}, 0},     {{40000}, 0},      {{5, 30}, 1},      {{5, 100}, 1}, {{100, 5}, 0},
      {{4, 70, 6}, 1}, {{3, 1100, 2}, 1}, {{50, 64, 70}, 0}, {{0, 4}, 0},   {{4, 0}, 0}};
  for (const auto& [shape, dim] : cases) {
    for (Dtype dtype : kMostDtypes) {
      const bool small = dtype == kBool || dtype == kUInt8;
      const Array host = whole(shape, dtype, small ? 0 : -8);
      for (const Layouts& l : layouts_for(dtype)) {
        const Array x = l.lay(host.to(kCUDA));
        for (OpId op : {kSumOp, kMaxOp, kMinOp}) {
          for (bool reverse : {false, true}) {
            const Dtype to = op == kSumOp && small ? kInt64 : dtype;
            CAPTURE(Tensor(host).sizes());
            CAPTURE(dtype);
            CAPTURE(l.name);
            CAPTURE(op);
            CAPTURE(reverse);
            CHECK(differ(scanned(op, x, dim, reverse, to), scanned(op, host, dim, reverse, to)) ==
                  "");
          }
        }
      }
    }
  }
}

TEST_CASE("gpu: long running sums of fractions are rounded once") {
  const Array x = normal({1024 * 33 + 5}, kFloat32);
  const Array expected = scanned(kSumOp, x, 0, true, kFloat32);
  CHECK(differ(scanned(kSumOp, x.to(kCUDA), 0, true, kFloat32), expected, {.ulps = 1}) == "");
}

TEST_CASE("gpu: running products, NaN, and layouts that change no bit") {
  Array x = normal({3, 1500}, kFloat64);
  const Array first = scanned(kSumOp, x.to(kCUDA), 1, false, kFloat64).to(kCPU);
  for (const Layouts& l : layouts)
    CHECK(differ(scanned(kSumOp, l.lay(x.to(kCUDA)), 1, false, kFloat64), first) == "");
  const Array power = signs(x.shape(), kFloat64);
  CHECK(differ(scanned(kProdOp, power.to(kCUDA), 1, false, kFloat64),
               scanned(kProdOp, power, 1, false, kFloat64)) == "");
  cpu_backend().fill(x.slice(1, 700, 701), kNaN);
  for (OpId op : {kMaxOp, kMinOp})
    CHECK(differ(scanned(op, x.to(kCUDA), 1, false, kFloat64),
                 scanned(op, x, 1, false, kFloat64)) == "");
  const Spaced y({3, 1500}, kFloat32, kCUDA);
  gpu().scan(kMaxOp, y.y, x.to(kCUDA), 1, true);
  CHECK(differ(y.y, scanned(kMaxOp, x, 1, true, kFloat32)) == "");
  y.check_neighbours();
}
