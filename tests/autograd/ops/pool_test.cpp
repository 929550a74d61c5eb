// Pooling: PyTorch's values, ties, NaN and infinities, and errors.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>

#include "halftape/tests/support/message.h"
#include "halftape/tests/support/nonfinite.h"
#include "halftape/tests/support/vector_cases.h"

using namespace halftape;
using doctest::Contains;
using testing::Cases;
using testing::differ;
using testing::kInf, testing::kNaN;
using testing::same_bits;

namespace {

template <class One, class Two, class Three>
auto of_rank(int n, One one, Two two, Three three) {
  return n == 1 ? one : n == 2 ? two : three;
}

}  // namespace

TEST_CASE("max pooling gives PyTorch's values, positions and gradients") {
  const testing::Vectors torch("pooling.txt");
  for (int i = 0; i < 6; ++i) {
    CAPTURE(i);
    const Cases c(torch, "max/" + std::to_string(i));
    const Dims kernel = c.dims("kernel");
    const auto f = of_rank(kernel.size(), max_pool1d_with_indices, max_pool2d_with_indices,
                           max_pool3d_with_indices);
    const auto call = [&](const Tensor& x) {
      return f(x, kernel, c.dims("stride"), c.dims("padding"), c.dims("dilation"),
               c.numbers("ceil")[0] != 0);
    };
    c.check([&](const Tensor& x) { return std::get<0>(call(x)); });
    CHECK(std::get<1>(call(c.x(kFloat64))).to_vector() == c.numbers("indices"));
  }
}

TEST_CASE("average pooling gives PyTorch's values and gradients for all its ways to count") {
  const testing::Vectors torch("pooling.txt");
  for (int i = 0; i < 8; ++i) {
    CAPTURE(i);
    const Cases c(torch, "mean/" + std::to_string(i));
    const std::vector<double>& about = c.numbers("about");
    const bool ceil = about[0] != 0, include = about[1] != 0;
    const auto divisor =
        about[2] != 0 ? std::optional(static_cast<int64_t>(about[2])) : std::nullopt;
    const Dims k = c.dims("kernel"), s = c.dims("stride"), p = c.dims("padding");
    c.check([&](const Tensor& x) {
      if (k.size() == 1) return avg_pool1d(x, k, s, p, ceil, include);
      return (k.size() == 2 ? avg_pool2d : avg_pool3d)(x, k, s, p, ceil, include, divisor);
    });
  }
}

TEST_CASE("adaptive pooling gives PyTorch's values, positions and gradients") {
  const testing::Vectors torch("pooling.txt");
  for (int i = 0; i < 7; ++i) {
    CAPTURE(i);
    const Cases c(torch, "adaptive/" + std::to_string(i));
    const Dims to = c.dims("to");
    c.check(
        [&](const Tensor& x) {
          return of_rank(to.size(), adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)(
              x, to);
        },
        "/mean");
    const auto largest =
        of_rank(to.size(), adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d);
    c.check([&](const Tensor& x) { return std::get<0>(largest(x, to)); }, "/max");
    CHECK(std::get<1>(largest(c.x(kFloat64), to)).to_vector() == c.numbers("indices"));
  }
}

TEST_CASE("pooling by a norm gives PyTorch's values and gradients") {
  const testing::Vectors torch("pooling.txt");
  for (int i = 0; i < 4; ++i) {
    CAPTURE(i);
    const Cases c(torch, "norm/" + std::to_string(i));
    const Dims k = c.dims("kernel");
    c.check([&](const Tensor& x) {
      return of_rank(k.size(), lp_pool1d, lp_pool2d, lp_pool3d)(
          x, c.numbers("about")[0], k, c.dims("stride"), c.numbers("about")[1] != 0);
    });
  }
  const Tensor zero = zeros({1, 4}).requires_grad_();
  lp_pool1d(zero, 2, 2).sum().backward();
  CHECK(zero.grad().to_vector() == std::vector<double>{0, 0, 0, 0});
}

TEST_CASE("of equal elements max pooling takes the first, and NaN wins") {
  const Tensor x = tensor(
      {{{1.0, 3.0, 3.0, 1.0}, {3.0, 1.0, 1.0, kNaN}, {2.0, 2.0, 0.0, kInf}, {2.0, 2.0, 0.0, 0.0}}},
      kFloat32);
  const auto [y, at] = max_pool2d_with_indices(x, 2);
  CHECK(at.to_vector<int64_t>() == std::vector<int64_t>{1, 7, 8, 11});
  CHECK(std::isnan(y.to_vector()[1]));
  CHECK(y.to_vector()[3] == kInf);
  // The same for windows that reach into the padding.
  const auto [z, where] = max_pool1d_with_indices(tensor({{2.0, 2.0, 2.0}}), 3, 1, 1);
  CHECK(where.to_vector<int64_t>() == std::vector<int64_t>{0, 0, 1});
  CHECK(z.to_vector() == std::vector<double>{2, 2, 2});
}

TEST_CASE("if all is minus infinity, max pooling gives the index of an element, not of padding") {
  const Tensor x = full({1, 3, 3}, -kInf, kFloat32).requires_grad_();
  const auto [y, at] = max_pool2d_with_indices(x, 2, 2, 1);
  CHECK(at.to_vector<int64_t>() == std::vector<int64_t>{0, 1, 3, 4});
  y.sum().backward();
  CHECK(x.grad().sum().item() == 4);
}

TEST_CASE("max pooling keeps the dtype of integers") {
  const Tensor x = arange(16).reshape({1, 4, 4});
  CHECK(max_pool2d(x, 2).to_vector<int64_t>() == std::vector<int64_t>{5, 7, 13, 15});
  CHECK(max_pool2d(x, 2).dtype() == kInt64);
}

TEST_CASE("max_unpool puts back what max pooling took") {
  const Tensor x = randn({2, 3, 4, 6}, kFloat64);
  const auto [y, at] = max_pool2d_with_indices(x, 2);
  const Tensor back = max_unpool2d(y, at, {4, 6});
  CHECK(same_bits(max_pool2d(back.abs(), 2), y.abs()));
  CHECK(same_bits(back, where(back != 0, x, zeros_like(x))));
  CHECK_THROWS_WITH_AS((max_unpool2d(y, at, {2, 6}), testing::settle()),
                       Contains("max_unpool2d: index"), Error);
  CHECK_THROWS_WITH_AS(max_unpool2d(y, at[0], {4, 6}), Contains("indices [3, 2, 3]"), Error);
}

TEST_CASE("an average of halves is rounded once") {
  // The sum, 400·300, is beyond float16's range.
  const Tensor x = full({1, 1, 20, 20}, 300, kFloat16);
  CHECK(avg_pool2d(x, 20).item() == 300);
  CHECK(avg_pool2d(x, 4).to_vector() == std::vector<double>(25, 300));
  CHECK(adaptive_avg_pool2d(x, 3).to_vector() == std::vector<double>(9, 300));
}

TEST_CASE("with ceil_mode a window may be larger than the input, as far as a stride reaches") {
  const Tensor x = tensor({1.0, 2.0, 3.0, 6.0}).reshape({1, 1, 2, 2});
  CHECK(max_pool2d(x, 3, 2, 0, 1, true).to_vector() == std::vector<double>{6});
  CHECK(max_pool3d(x.unsqueeze(2), {1, 3, 3}, 2, 0, 1, true).to_vector() == std::vector<double>{6});
  CHECK(avg_pool2d(x, 3, 2, 0, true).to_vector() == std::vector<double>{3});
  CHECK(avg_pool2d(x, 3, 2, 0, true, true, 3).to_vector() == std::vector<double>{4});
  const Tensor line = tensor({2.0, 4.0}).reshape({1, 2}).requires_grad_();
  const Tensor y = avg_pool1d(line, 3, 2, 0, true);
  CHECK(y.to_vector() == std::vector<double>{3});
  y.sum().backward();
  CHECK(line.grad().to_vector() == std::vector<double>{0.5, 0.5});
  for (const bool ceil : {false, true})
    CHECK_THROWS_WITH_AS(max_pool2d(x, 4, 2, 0, 1, ceil), Contains("covers 4 elements"), Error);
}

TEST_CASE("windows that begin far beside the input cover what lies in it") {
  const Tensor x = -arange(1, 11).to(kFloat64).reshape({1, 1, 10});
  for (const int64_t far : {int64_t{10}, int64_t{1} << 31, (int64_t{1} << 31) + 1,
                            (int64_t{1} << 32) + 1, int64_t{1} << 40})
    for (const Dtype d : {kFloat16, kFloat32, kFloat64}) {
      const Tensor in = x.to(d).clone().requires_grad_();
      const Tensor y = max_pool1d(in, 3, 1, far, far);
      CHECK(same_bits(y.detach(), in.detach()));
      y.sum().backward();
      CHECK(same_bits(in.grad(), ones({1, 1, 10}, d)));
    }
  CHECK_THROWS_WITH_AS(avg_pool1d(zeros({1, 1, 0}), 2, 3, 0, true), Contains("covers 2 elements"),
                       Error);
}

TEST_CASE("windows of fractional pooling are placed in float32, of halves as well") {
  const Tensor x = rand({1, 1, 453, 453}), samples = full({1, 1, 2}, 0.3, kBFloat16);
  const auto [y, at] = fractional_max_pool2d(x.to(kBFloat16), 2, 301, samples);
  const auto [wide, places] =
      fractional_max_pool2d(x.to(kBFloat16).to(kFloat32), 2, 301, samples.to(kFloat32));
  CHECK(at.equal(places));
  CHECK(y.equal(wide.to(kBFloat16)));
}

TEST_CASE("pooling refuses wrong arguments") {
  const Tensor x = randn({1, 2, 5, 5});
  const auto refuses = [](const auto& call, const char* text) {
    CHECK_THROWS_WITH_AS(call(), Contains(text), Error);
  };
  refuses([&] { max_pool2d(x, 0); }, "max_pool2d: kernel_size [0, 0] must not be 0 or negative");
  refuses([&] { max_pool2d(x, 2, 2, 2); },
          "padding [2, 2] is more than half of kernel_size [2, 2]");
  refuses([&] { max_pool2d(x, 6); }, "kernel [6, 6] with dilation [1, 1] covers 6 elements");
  refuses([&] { max_pool2d(x, {1, 2, 3}); }, "kernel_size [1, 2, 3] has 3 numbers; expected 2");
  refuses([&] { max_pool2d(randn({5, 5}), 2); }, "input [5, 5] has 2 dimensions; expected 4");
  refuses(
      [&] {
        max_pool1d(randn({1, 1}), 2, 1, 1, 2);
      },
      "max_pool1d: window 0 of dimension 0 covers no element of the input [1]");
  refuses([&] { avg_pool2d(x, 2, 2, 0, false, true, 0); }, "divisor_override must not be 0");
  refuses(
      [&] {
        avg_pool2d(arange(16).reshape({1, 4, 4}), 2);
      },
      "avg_pool2d: of a tensor of int64");
  refuses([&] { adaptive_avg_pool2d(x, 0); }, "output_size [0, 0] must not be 0 or negative");
  refuses([&] { lp_pool2d(x, 0, 2); }, "lp_pool2d: norm_type must not be 0");
}

TEST_CASE("pooling gives the same bits for any number of threads") {
  const int before = get_num_threads();
  for (const Dtype dtype : {kFloat32, kBFloat16}) {
    const Tensor x = randn({5, 6, 31, 29}, dtype).requires_grad_();
    TensorList first;
    for (const int threads : {1, 2, 4}) {
      set_num_threads(threads);
      const Tensor y = max_pool2d(avg_pool2d(x, 3, 1, 1), 3, 2, 1);
      const Tensor g = arange(y.numel(), kFloat32).reshape(y.sizes()).to(dtype) / 1000;
      const TensorList all{y.detach(), autograd::grad({y}, {x}, {g})[0]};
      if (first.empty()) first = all;
      for (size_t i = 0; i < all.size(); ++i) CHECK(same_bits(all[i], first[i]));
    }
  }
  set_num_threads(before);
}
