// Normalisation beyond the op table: digits where the mean is far from 0, mixed dtypes, running
// statistics, what runs on the device.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/tracing_backend.h"

using namespace halftape;
using testing::differ;
using testing::same_bits;

namespace {

/// The largest |got − exact|, where `exact` is the same op in float64.
double error(const Tensor& got, const Tensor& exact) {
  return (got.to(kFloat64) - exact).abs().amax().item<double>();
}
Tensor far_off(const Shape& shape, double mean, double deviation, Dtype dtype) {
  manual_seed(5);
  return (randn(shape, kFloat64) * deviation + mean).to(dtype);
}

}  // namespace

TEST_CASE("a layer norm's gradients are those in float64 for any number of rows and columns") {
  manual_seed(3);
  for (const int64_t rows : {1, 127, 128, 129, 300}) {
    for (const int64_t columns : {1, 31, 32, 33, 64}) {
      CAPTURE(rows);
      CAPTURE(columns);
      const Tensor x = randn({rows, columns}), g = randn({rows, columns});
      const Tensor weight = randn({columns}), bias = randn({columns});
      std::vector<Tensor> wide, narrow;
      for (auto* grads : {&wide, &narrow}) {
        std::vector<Tensor> of;
        for (const Tensor& t : {x, weight, bias})
          of.push_back(t.detach().to(grads == &wide ? kFloat64 : kFloat32).clone());
        for (Tensor& t : of) t.set_requires_grad(true);
        // A large eps: the deviation of a single column is 0, and 1/√eps would magnify errors.
        layer_norm(of[0], {columns}, of[1], of[2], 0.1).backward(g.to(of[0].dtype()));
        for (const Tensor& t : of) grads->push_back(t.grad());
      }
      // Sums of `rows` terms of up to 16, in float32.
      for (size_t i = 0; i < wide.size(); ++i)
        CHECK(error(narrow[i], wide[i]) <
              16 * std::sqrt(static_cast<double>(rows)) * epsilon(kFloat32));
    }
  }
}

TEST_CASE("a mean far above the deviation costs norms no digits in half") {
  // E[x²] − E[x]² would have an error of 1000²·2⁻²⁴·few = 0.1 in a variance of 1 … 4.
  for (const Dtype dtype : {kFloat16, kBFloat16}) {
    for (const double mean : {1000.0, -500.0}) {
      const Tensor x = far_off({8, 6, 50}, mean, dtype == kFloat16 ? 2 : 16, dtype);
      const Tensor wide = x.to(kFloat64);
      const double allowed = 2.5 * epsilon(dtype);  // half an ulp of numbers up to 4, and a little
      CHECK(error(layer_norm(x, {50}), layer_norm(wide, {50})) < allowed);
      CHECK(error(group_norm(x, 2), group_norm(wide, 2)) < allowed);
      CHECK(error(instance_norm(x), instance_norm(wide)) < allowed);
      CHECK(error(batch_norm(x, {}, {}, {}, {}, true), batch_norm(wide, {}, {}, {}, {}, true)) <
            allowed);
    }
  }
}

TEST_CASE(
    "in float32 a mean of 10,000 deviations costs a norm no more than the rounding of the mean") {
  const Tensor x = far_off({4, 3, 700}, 1e4, 1, kFloat32), wide = x.to(kFloat64);
  const double allowed = 1.1 * testing::ulp(1e4, kFloat32) / 2;
  CHECK(error(layer_norm(x, {700}), layer_norm(wide, {700})) < allowed);
  CHECK(error(batch_norm(x, {}, {}, {}, {}, true), batch_norm(wide, {}, {}, {}, {}, true)) <
        allowed);
  Tensor var = zeros({3}), mean = zeros({3});
  batch_norm(x, mean, var, {}, {}, true, 1);
  CHECK(differ(var, halftape::var(wide, {0, 2}), {.eps = 1e-4 / epsilon(kFloat32)}) == "");
  CHECK(differ(mean, halftape::mean(wide, {0, 2}), {.ulps = 1}) == "");
}

TEST_CASE("norms turn equal values into zeros") {
  for (const Dtype dtype : {kFloat16, kFloat32, kFloat64}) {
    for (const double value : {0.1, 1000.3, -7e-3}) {
      const Tensor x = full({4, 3, 33}, value, dtype);
      CHECK(layer_norm(x, {33}).abs().amax().item<double>() == 0);
      CHECK(batch_norm(x, {}, {}, {}, {}, true).abs().amax().item<double>() == 0);
    }
  }
}

TEST_CASE("half values with float32 weights and running statistics stay half") {
  const Tensor x = randn({6, 4, 5}).to(kFloat16).requires_grad_();
  const Tensor w = randn({4}).requires_grad_(), b = randn({4}).requires_grad_();
  Tensor mean = zeros({4}), var = ones({4});
  const Tensor y = batch_norm(x, mean, var, w, b, true);
  CHECK(y.dtype() == kFloat16);
  CHECK(mean.dtype() == kFloat32);
  y.backward(ones_like(y) * 2);
  CHECK(x.grad().dtype() == kFloat16);
  CHECK(w.grad().dtype() == kFloat32);
  CHECK(differ(b.grad(), {60, 60, 60, 60}, {}) == "");
  const amp::autocast region(get_default_device().type(), kFloat16);
  CHECK(batch_norm(x, mean, var, w, b).dtype() == kFloat16);
  CHECK(layer_norm(x, {5}).dtype() == kFloat32);
}

TEST_CASE("half running statistics are rounded once") {
  const Tensor x = randn({6, 4});
  Tensor mean = zeros({4}), var = ones({4}), half_mean = zeros({4}, kFloat16),
         half_var = ones({4}, kFloat16);
  batch_norm(x, mean, var, {}, {}, true, 0.5);
  batch_norm(x, half_mean, half_var, {}, {}, true, 0.5);
  CHECK(same_bits(half_mean, mean.to(kFloat16)));
  CHECK(same_bits(half_var, var.to(kFloat16)));
}

TEST_CASE("running statistics may be views with other strides, and raise their version") {
  const Tensor x = randn({6, 4}), both = zeros({4, 2});
  Tensor plain_mean = zeros({4}), plain_var = zeros({4});
  const uint64_t version = both.version();
  batch_norm(x, both.select(1, 0), both.select(1, 1), {}, {}, true);
  batch_norm(x, plain_mean, plain_var, {}, {}, true);
  CHECK(both.version() > version);
  CHECK(same_bits(both.select(1, 0).contiguous(), plain_mean));
  CHECK(same_bits(both.select(1, 1).contiguous(), plain_var));
}

TEST_CASE("if one channel overflows, the running statistics of all channels stay") {
  const double inf = std::numeric_limits<double>::infinity();
  Tensor x = randn({5, 3});
  x[2][1] = inf;
  Tensor mean = full({3}, -0.0), var = full({3}, 0.7);
  const Tensor mean_before = mean.clone(), var_before = var.clone();
  batch_norm(x, mean, var, {}, {}, true);
  CHECK(same_bits(mean, mean_before));
  CHECK(same_bits(var, var_before));
  // The same for finite values whose variance overflows float32.
  batch_norm(tensor({{1e30f, 0.0f, 0.0f}, {-1e30f, 1.0f, 2.0f}}), mean, var, {}, {}, true);
  CHECK(same_bits(mean, mean_before));
  batch_norm(x, mean, var, {}, {}, true, 0.1, 1e-5, false);
  CHECK_FALSE(mean.isfinite().all().item<bool>());
  CHECK(mean[0].isfinite().item<bool>());
}

TEST_CASE("later training does not change the gradients of an evaluation") {
  Tensor mean = zeros({3}), var = ones({3});
  const Tensor x = randn({4, 3}).requires_grad_(), w = ones({3}).requires_grad_();
  const Tensor y = batch_norm(x, mean, var, w, {});
  batch_norm(randn({4, 3}) + 5, mean, var, {}, {}, true, 1);
  y.backward(ones_like(y));
  const Tensor expected = sum(x.detach(), {0}) / std::sqrt(1 + 1e-5);
  CHECK(differ(w.grad(), expected, {.ulps = 4, .eps = 16}) == "");
}

TEST_CASE("a batch without samples leaves the statistics alone and has zero gradients") {
  Tensor mean = full({3}, 2.0), var = full({3}, 3.0);
  const Tensor x = zeros({0, 3, 4}).requires_grad_(), w = ones({3}).requires_grad_(),
               b = ones({3}).requires_grad_();
  for (const bool training : {true, false}) {
    const Tensor y = batch_norm(x, mean, var, w, b, training);
    CHECK(y.sizes() == Shape{0, 3, 4});
    y.backward(zeros({0, 3, 4}));
    CHECK(w.grad().equal(zeros({3})));
    CHECK(b.grad().equal(zeros({3})));
  }
  CHECK(mean.equal(full({3}, 2.0)));
  const Tensor lw = ones({4}).requires_grad_();
  layer_norm(x, {4}, lw).backward(zeros({0, 3, 4}));
  CHECK(lw.grad().equal(zeros({4})));
}

TEST_CASE("a norm is one call of the device in each direction, and reads nothing back") {
  if (!get_default_device().is_cpu()) return;
  nn::BatchNorm2d batch(nn::BatchNorm2dOptions(4).momentum(std::nullopt));
  nn::LayerNorm layer(5);
  nn::RMSNorm rms(5);
  const Tensor x = randn({2, 4, 3, 5}).requires_grad_();
  testing::TracingBackend device;
  const Tensor y = rms(layer(batch(x)));
  CHECK(device.count("batch_norm") == 1);
  CHECK(device.count("row_norm") == 2);
  CHECK(device.count("copy") + 3 == static_cast<int64_t>(device.calls.size()));  // no others
  const Tensor g = ones_like(y);
  device.clear();
  y.backward(g);
  CHECK(device.count("batch_norm_grad") == 1);
  CHECK(device.count("row_norm_grad") == 2);
  CHECK(device.count("read") == 0);
}

TEST_CASE("norms name what is wrong with their arguments") {
  const Tensor x = ones({2, 4, 3});
  CHECK_THROWS_WITH_AS(layer_norm(x, {4}), doctest::Contains("does not end in"), Error);
  CHECK_THROWS_WITH_AS(layer_norm(x, {}), doctest::Contains("layer_norm"), Error);
  CHECK_THROWS_WITH_AS(layer_norm(x, {3}, ones({4})), doctest::Contains("weight is float32 [4]"),
                       Error);
  CHECK_THROWS_WITH_AS(rms_norm(x, {3}, ones({3}, kInt64)), doctest::Contains("weight is int64"),
                       Error);
  CHECK_THROWS_WITH_AS(layer_norm(x.to(kInt64), {3}), doctest::Contains("int64"), Error);
  CHECK_THROWS_WITH_AS(batch_norm(x, {}, {}), doctest::Contains("running_mean"), Error);
  CHECK_THROWS_WITH_AS(batch_norm(x, ones({4}), {}, {}, {}, true), doctest::Contains("give both"),
                       Error);
  CHECK_THROWS_WITH_AS(batch_norm(x, ones({3}), ones({3})),
                       doctest::Contains("running_mean is float32 [3]"), Error);
  CHECK_THROWS_WITH_AS(batch_norm(x, zeros({1}).expand({4}), ones({4}), {}, {}, true),
                       doctest::Contains("several elements are one number"), Error);
  CHECK_THROWS_WITH_AS(batch_norm(ones({3}), {}, {}, {}, {}, true),
                       doctest::Contains("has no channels"), Error);
  CHECK_THROWS_WITH_AS(group_norm(x, 3), doctest::Contains("num_groups 3"), Error);
  CHECK_THROWS_WITH_AS(group_norm(x, 2, ones({2})), doctest::Contains("expected a floating"),
                       Error);
  CHECK_THROWS_WITH_AS(local_response_norm(x, 0), doctest::Contains("size 0"), Error);
}

TEST_CASE("a batch of nothing leaves the running statistics of batch_norm alone") {
  for (const bool skip_nonfinite : {false, true}) {
    const Tensor mean = ones({3}), var = full({3}, 2.0);
    const Tensor y =
        batch_norm(zeros({0, 3, 2}), mean, var, {}, {}, true, 0.1, 1e-5, skip_nonfinite);
    CHECK(y.sizes() == Shape{0, 3, 2});
    CHECK(mean.equal(ones({3})));
    CHECK(var.equal(full({3}, 2.0)));
  }
}
