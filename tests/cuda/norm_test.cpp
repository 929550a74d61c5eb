// Normalisation on the GPU: rows of any length, channels of any layout, running statistics.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>
#include <vector>

#include "layouts.h"

using namespace halftape;
using namespace halftape::testing::array_layouts;

namespace {

Dtype wide(Dtype d) { return d == kFloat64 ? kFloat64 : kFloat32; }

/// The same elements on the GPU in another layout.
Array laid(const Array& on_cpu, int layout) {
  const Array x = on_cpu.to(kCUDA);
  const int last = x.dim() - 1;
  if (layout == 1) {  // beside every alignment
    const Array all({x.numel() + 1}, x.dtype(), kCUDA);
    const Array y = all.as_strided(x.shape(), contiguous_strides(x.shape()), 1);
    gpu().copy(y, x);
    return y;
  }
  if (layout == 2) {  // dimensions in memory in reverse order: channels last
    Dims order;
    for (int d = last; d >= 0; --d) order.push_back(d);
    return x.permute(order).clone().permute(order);
  }
  if (layout == 3) {  // every second
    Shape room = x.shape();
    room[last] *= 2;
    const Array y = Array(room, x.dtype(), kCUDA).slice(last, 0, room[last], 2);
    gpu().copy(y, x);
    return y;
  }
  return x;
}
std::vector<int> norm_layouts_for(Dtype d) {
  return d == kFloat16 || d == kFloat32 ? std::vector{0, 1, 2, 3} : std::vector{0};
}

/// The results of a norm and its gradient.
struct Results {
  Array y = {}, mean = {}, rstd = {}, dx = {}, dweight = {}, dbias = {};
  RunningStats running = {};

  /// Element by element: halves within a rounding, wide ones within a few.
  void check(const Results& expected) const {
    const testing::Tolerance near{.ulps = 1, .eps = is_16bit(y.dtype()) ? 1.0 : 32.0};
    CHECK(differ(y, expected.y, near) == "");
    if (mean.defined()) CHECK(differ(mean, expected.mean, {.ulps = 8, .eps = 8}) == "");
    CHECK(differ(rstd, expected.rstd, {.ulps = 16}) == "");
    CHECK(differ(dx, expected.dx, near) == "");
    CHECK(differ(dweight, expected.dweight, {.ulps = 8, .eps = 32}) == "");
    CHECK(differ(dbias, expected.dbias, {.ulps = 8, .eps = 32}) == "");
    if (!running.mean.defined()) return;
    CHECK(differ(running.mean, expected.running.mean, {.ulps = 8, .eps = 8}) == "");
    CHECK(differ(running.var, expected.running.var, {.ulps = 16}) == "");
    CHECK(read_int64(running.batches) == read_int64(expected.running.batches));
  }
  void check_same_bits(const Results& other) const {
    for (const auto& [a, b] : {std::pair{&y, &other.y},
                               {&rstd, &other.rstd},
                               {&dx, &other.dx},
                               {&dweight, &other.dweight},
                               {&dbias, &other.dbias}})
      CHECK(differ(*a, *b) == "");
  }
};

struct Problem {
  Array x, g, weight, bias;
  bool centred = true, affine = true;
  Problem(const Shape& shape, int64_t weights, Dtype dtype)
      : x(normal(shape, dtype, 1, 1, 3)),
        g(normal(shape, dtype, 2)),
        weight(normal({weights}, wide(dtype), 3, 1, 1)),
        bias(normal({weights}, wide(dtype), 4)) {}

  Results run(Device device, int layout, bool rows, bool training = true) const {
    const auto put = [&](const Array& a) { return device.is_cpu() ? a : laid(a, layout); };
    const auto like = [&](const Array& a) { return put(a.clone()); };  // values do not matter
    const Array in = put(x);
    Norm norm{.x = in, .eps = 1e-5};
    if (affine) norm.weight = weight.to(device), norm.bias = bias.to(device);
    const Shape each = rows ? reduced_shape(x.shape(), {x.dim() - 1}, false) : weight.shape();
    if (centred) norm.mean = full(each, 2.5, wide(x.dtype()), device);
    norm.rstd = full(each, 0.5, wide(x.dtype()), device);
    Results r{.y = like(x), .mean = norm.mean, .rstd = norm.rstd, .dx = like(x)};
    r.dweight = Array(weight.shape(), kFloat32, device);
    r.dbias = Array(weight.shape(), wide(x.dtype()), device);
    Backend& b = backend(device);
    if (rows) {
      b.row_norm(r.y, norm);
      b.row_norm_grad({r.dx, r.dweight, r.dbias}, put(g), norm);
      return r;
    }
    if (training) {
      const Array both = full({weight.numel(), 2}, 0.25, kFloat32, device);
      r.running = {.mean = both.select(1, 0),
                   .var = both.select(1, 1),
                   .batches = full({}, 2, kInt64, device),
                   .momentum = layout == 1 ? 0.1 : -1};
    }
    b.batch_norm(r.y, norm, training, r.running);
    b.batch_norm_grad({r.dx, r.dweight, r.dbias}, put(g), norm, training);
    return r;
  }
};

}  // namespace

TEST_CASE("gpu: rows are normalised as on the CPU, whatever their length and layout") {
  for (const int64_t length : {1, 3, 8, 32, 257, 1000, 1025, 5000}) {
    for (const Dtype dtype : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
      for (const bool centred : {true, false}) {
        Problem p({2, 3, length}, length, dtype);
        p.centred = centred, p.affine = dtype != kBFloat16;
        const Results expected = p.run(kCPU, 0, true);
        Results first;
        for (const int layout : norm_layouts_for(dtype)) {
          CAPTURE(length);
          CAPTURE(dtype);
          CAPTURE(centred);
          CAPTURE(layout);
          const Results got = p.run(kCUDA, layout, true);
          got.check(expected);
          if (layout == 0) first = got;
          got.check_same_bits(first);
        }
      }
    }
  }
}

TEST_CASE("gpu: many rows, of which a block works on one after the other") {
  for (const Shape& shape : {Shape{2100, 20}, Shape{70, 1100}, Shape{1500, 3}, Shape{40}}) {
    CAPTURE(shape);
    const Problem p(shape, shape.back(), kFloat32);
    p.run(kCUDA, 0, true).check(p.run(kCPU, 0, true));
  }
}

TEST_CASE("gpu: channels are normalised as on the CPU, whatever their shape and layout") {
  for (const Shape& shape :
       {Shape{4, 3, 1}, Shape{2, 3, 7}, Shape{1, 2, 9}, Shape{3, 40, 33}, Shape{70, 5, 64},
        Shape{2, 1, 3000}, Shape{600, 33, 1}, Shape{5, 1030, 2}}) {
    for (const Dtype dtype : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
      for (const bool training : {true, false}) {
        Problem p(shape, shape[1], dtype);
        p.affine = dtype != kBFloat16;
        Results first;
        for (const int layout : norm_layouts_for(dtype)) {
          CAPTURE(shape);
          CAPTURE(dtype);
          CAPTURE(training);
          CAPTURE(layout);
          const Results got = p.run(kCUDA, layout, false, training);
          got.check(p.run(kCPU, layout, false, training));
          if (layout == 0) first = got;
          got.check_same_bits(first);
        }
      }
    }
  }
}

TEST_CASE("gpu: an infinity in the last channel of many leaves running statistics as they are") {
  for (const bool skip : {true, false}) {
    Array x = normal({2, 1100, 5}, kFloat32, 1);
    cpu_backend().fill(x.slice(0, 1, 2).slice(1, 1099, 1100).slice(2, 0, 1), kInf);
    const Array in = x.to(kCUDA), y = empty_like(in);
    const Norm norm{.x = in,
                    .mean = Array({1100}, kFloat32, kCUDA),
                    .rstd = Array({1100}, kFloat32, kCUDA),
                    .eps = 1e-5};
    const RunningStats running{.mean = full({1100}, -0.0, kFloat32, kCUDA),
                               .var = full({1100}, 1.5, kFloat16, kCUDA),
                               .batches = full({}, 7, kInt64, kCUDA),
                               .skip_nonfinite = skip};
    gpu().batch_norm(y, norm, true, running);
    CHECK(read_int64(running.batches) == (skip ? 7 : 8));
    const Tensor mean(running.mean.to(kCPU)), var(running.var.to(kCPU));
    CHECK(testing::same_bits(mean, Tensor(full({1100}, -0.0, kFloat32, kCPU))) == skip);
    CHECK(testing::same_bits(var, Tensor(full({1100}, 1.5, kFloat16, kCPU))) == skip);
    if (!skip) CHECK_FALSE(std::isfinite(mean.to_vector()[1099]));
    if (!skip) CHECK(std::isfinite(mean.to_vector()[1098]));
  }
}

TEST_CASE("gpu: norms of nothing have weights' gradients of zero") {
  const Problem rows({0, 3, 5}, 5, kFloat32), channels({0, 3, 5}, 3, kFloat32);
  for (const Problem* p : {&rows, &channels}) {
    const Results r = p->run(kCUDA, 0, p == &rows);
    CHECK(differ(r.dweight, full(r.dweight.shape(), 0, kFloat32, kCPU)) == "");
    CHECK(differ(r.dbias, full(r.dbias.shape(), 0, kFloat32, kCPU)) == "");
  }
}

TEST_CASE("gpu: the gradients of a norm's weights are the same wherever they are put") {
  const Problem p({6, 40}, 40, kFloat32);
  for (const bool rows : {true, false}) {
    CAPTURE(rows);
    const Results r = p.run(kCUDA, 0, rows);
    const Norm norm{.x = p.x.to(kCUDA),
                    .weight = p.weight.to(kCUDA),
                    .bias = p.bias.to(kCUDA),
                    .mean = r.mean,
                    .rstd = r.rstd,
                    .eps = 1e-5};
    const auto put = [&](const Array& dweight, const Array& dbias) {
      const NormGrads d{.dweight = dweight, .dbias = dbias};
      rows ? gpu().row_norm_grad(d, p.g.to(kCUDA), norm)
           : gpu().batch_norm_grad(d, p.g.to(kCUDA), norm, true);
    };
    const Array strided = full({80}, 7, kFloat32, kCUDA).slice(0, 0, 80, 2);
    const Array half({40}, kFloat16, kCUDA);
    put(strided, half);
    CHECK(differ(strided, r.dweight) == "");
    CHECK(differ(half, r.dbias.to(kFloat16)) == "");
    put(half, strided);
    CHECK(differ(half, r.dweight.to(kFloat16)) == "");
    CHECK(differ(strided, r.dbias) == "");
    put({}, half);
    CHECK(differ(half, r.dbias.to(kFloat16)) == "");
    put(half, {});
    CHECK(differ(half, r.dweight.to(kFloat16)) == "");
  }
}

TEST_CASE("what stands beside the input of a norm, or in the place of a part, is on its device") {
  const Tensor here = ones({2, 8, 3}, kCPU), there = ones({2, 8, 3}, kCUDA);
  for (const Tensor& x : {here, there}) {
    const Tensor other = ones({8}, x.device() == kCPU ? kCUDA : kCPU), own = ones({8}, x.device());
    const auto refused = doctest::Contains("move one with .to(device)");
    const Tensor rows = x.transpose(1, 2);
    CHECK_THROWS_WITH_AS(layer_norm(rows, {8}, other), refused, Error);
    CHECK_THROWS_WITH_AS(layer_norm(rows, {8}, own, other), refused, Error);
    CHECK_THROWS_WITH_AS(rms_norm(rows, {8}, other), refused, Error);
    CHECK_THROWS_WITH_AS(group_norm(x, 2, own, other), refused, Error);
    for (const bool training : {false, true}) {
      CHECK_THROWS_WITH_AS(batch_norm(x, other, other, {}, {}, training), refused, Error);
      CHECK_THROWS_WITH_AS(batch_norm(x, own, own, other, {}, training), refused, Error);
      CHECK_THROWS_WITH_AS(instance_norm(x, other, other, {}, {}, training), refused, Error);
    }
    const Tensor part = ones({8, 3}, other.device());
    CHECK_THROWS_WITH_AS(select_scatter(x, part, 0, 0), refused, Error);
    CHECK_THROWS_WITH_AS(slice_scatter(x, part.unsqueeze(0), 0, 0, 1), refused, Error);
    CHECK_THROWS_WITH_AS(as_strided_scatter(x, part, {8, 3}, {3, 1}), refused, Error);
  }
}
