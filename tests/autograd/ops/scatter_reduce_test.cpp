// scatter_reduce beyond the op table: zeros, equal values, NaN, integers, rounding, errors.
#include <doctest/doctest.h>

#include <limits>

#include <halftape/halftape.h>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/lists.h"
#include "halftape/tests/support/message.h"

using namespace halftape;
using testing::differ;
using testing::ints, testing::list;
using testing::message;
using testing::same_bits;

namespace {

using List = std::vector<double>;
const char* const kWays[] = {"sum", "prod", "mean", "amax", "amin"};

/// The gradients of the sum of a reduction of three numbers into three, at 0, 0 and 2.
TensorList gradients(const List& x, const List& src, const char* how, bool include_self) {
  const Tensor a = list(x).requires_grad_(), b = list(src).requires_grad_();
  return autograd::grad({scatter_reduce(a, 0, ints({0, 0, 2}), b, how, include_self).sum()},
                        {a, b});
}

}  // namespace

TEST_CASE("the gradient of scatter_reduce is right at zeros, and equal extremes share it") {
  const auto check = [](const char* how, bool include_self, const List& dx, const List& dsrc) {
    INFO(how << ' ' << include_self);
    const TensorList g = gradients({3, 1, 2}, {3, 3, 0}, how, include_self);
    CHECK(differ(g[0], dx, {.ulps = 1}) == "");
    CHECK(differ(g[1], dsrc, {.ulps = 1}) == "");
  };
  const double third = 1.0 / 3;
  check("sum", true, {1, 1, 1}, {1, 1, 1});
  check("sum", false, {0, 1, 0}, {1, 1, 1});
  check("prod", true, {9, 1, 0}, {9, 9, 2});
  check("prod", false, {0, 1, 0}, {3, 3, 1});
  check("mean", true, {third, 1, 0.5}, {third, third, 0.5});
  check("mean", false, {0, 1, 0}, {0.5, 0.5, 1});
  check("amax", true, {third, 1, 1}, {third, third, 0});
  check("amax", false, {0, 1, 0}, {0.5, 0.5, 1});  // elements of x that are left out have no share
  check("amin", true, {third, 1, 0}, {third, third, 1});
}

TEST_CASE("first and second derivatives of scattered products are right where factors are 0") {
  const Tensor at = ints({0, 0, 1, 1, 1, 2});
  const auto product = [&](const TensorList& x) {
    return scatter_reduce(x[0], 0, at, x[1], "prod");
  };
  const List factors[] = {{2, 0, 3, 4, 5, 6}, {0, 0, 3, 0, 5, 0}, {0, 2, 0, 0, 0, 3}};
  for (const List& src : factors) {
    const TensorList x{list({1.5, 2, 0}).requires_grad_(), list(src).requires_grad_()};
    CHECK(autograd::gradcheck(product, x));
    CHECK(autograd::gradgradcheck(product, x));
  }
}

TEST_CASE("the gradient of a zero survives partial products beyond the range of float32") {
  const Tensor x = ones({1}), at = zeros({5}, kInt64);
  const Tensor src = tensor({0.0F, 1e30F, 1e30F, 1e-30F, 1e-30F}).requires_grad_();
  const Tensor y = scatter_reduce(x, 0, at, src, "prod");
  CHECK(y.item<float>() == 0);
  const List g = autograd::grad({y.sum()}, {src})[0].to_vector();
  CHECK(g[0] == doctest::Approx(1));
  CHECK(g[1] == 0);
}

TEST_CASE("NaN wins over every number and takes the gradient") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor x = list({nan, 1}).requires_grad_(), src = list({3, 5}).requires_grad_();
  for (const char* how : {"amax", "amin"}) {
    const Tensor y = scatter_reduce(x, 0, ints({0, 0}), src, how);
    CHECK(differ(y, {nan, 1}, {}) == "");
    const TensorList g = autograd::grad({y.sum()}, {x, src});
    CHECK(g[0].to_vector() == List{1, 1});
    CHECK(g[1].to_vector() == List{0, 0});
  }
}

TEST_CASE("means of integers are rounded down, and extremes are right for any integers") {
  const Tensor at = ints({0, 0, 2});
  for (const Dtype d : {kInt32, kInt64}) {
    const Tensor x = list({3, 1, 2}, d), src = list({-4, -3, 1}, d);
    const auto of = [&](const char* how, bool include_self) {
      const Tensor y = scatter_reduce(x, 0, at, src, how, include_self);
      CHECK(y.dtype() == d);
      return y.to_vector();
    };
    CHECK(of("mean", true) == List{-2, 1, 1});
    CHECK(of("mean", false) == List{-4, 1, 1});
    CHECK(of("amax", false) == List{-3, 1, 1});
    CHECK(of("amin", false) == List{-4, 1, 1});
    CHECK(of("prod", true) == List{36, 1, 2});
  }
  const Tensor bytes = list({200, 0}, kUInt8);
  CHECK(scatter_reduce(bytes, 0, ints({0}), list({100}, kUInt8), "sum").to_vector() == List{44, 0});
  CHECK(scatter_reduce(bytes, 0, ints({0}), list({100}, kUInt8), "amin", false).to_vector() ==
        List{100, 0});
  const Tensor flags = list({1, 0, 0}, kBool), on = list({1, 1, 1}, kBool);
  CHECK(scatter_reduce(flags, 0, at, on, "amax").to_vector() == List{1, 0, 1});
  CHECK(scatter_reduce(flags, 0, at, on, "prod").to_vector() == List{1, 0, 0});
}

TEST_CASE("half is reduced in float32 and rounded once, also where the result is a mean") {
  // In float16, 2048 + 1 is 2048.
  const Tensor x = list({2048}, kFloat16), src = ones({4096}, kFloat16);
  const Tensor at = zeros({4096}, kInt64);
  CHECK(scatter_reduce(x, 0, at, src, "sum").item<double>() == 6144);
  // The sum, 1.2e8, is beyond float16's range.
  CHECK(scatter_reduce(x, 0, at, src * 30000, "mean", false).item<double>() == 30000);
  const Tensor big = list({60000}, kFloat16), factors = list({4, 0.25}, kFloat16);
  CHECK(scatter_reduce(big, 0, ints({0, 0}), factors, "prod").item<double>() == big.item<double>());
}

TEST_CASE("scatter_reduce gives the same bits for any number of threads") {
  const Tensor x = randn({64, 33}), src = randn({5000, 33});
  const Tensor at = randint(64, {5000, 33});
  const int threads = get_num_threads();
  for (const char* how : kWays) {
    set_num_threads(1);
    const Tensor one = scatter_reduce(x, 0, at, src, how);
    set_num_threads(4);
    CHECK(same_bits(scatter_reduce(x, 0, at, src, how), one));
  }
  set_num_threads(threads);
}

TEST_CASE("scatter adds or multiplies a tensor or a number") {
  const Tensor x = list({1, 2, 3}), at = ints({0, 0, 2}), src = list({4, 5, 6});
  CHECK(scatter(x, 0, at, src, "add").to_vector() == List{10, 2, 9});
  CHECK(scatter(x, 0, at, src, "multiply").to_vector() == List{20, 2, 18});
  CHECK(scatter(x, 0, at, 2, "add").to_vector() == List{5, 2, 5});
  CHECK(x.scatter(0, at, 3, "multiply").to_vector() == List{9, 2, 9});
  Tensor y = x.clone();
  y.scatter_(0, at, 2, "add").scatter_(0, at, src, "multiply");
  CHECK(y.to_vector() == List{100, 2, 30});
  CHECK(x.scatter_reduce(0, at, src, "amax").to_vector() == List{5, 2, 6});
  CHECK(y.scatter_reduce_(0, at, src, "mean", false).to_vector() == List{4.5, 2, 6});
  CHECK(scatter_reduce(tensor(2.0), 0, tensor(0, kInt64), tensor(3.0), "prod").item<double>() == 6);
}

TEST_CASE("errors of scatter_reduce and scatter name the reductions that exist") {
  const Tensor x = ones({2}), at = ints({0});
  CHECK(message([&] { scatter_reduce(x, 0, at, x, "max"); }) ==
        "scatter_reduce: reduce is \"max\", expected \"sum\", \"prod\", \"mean\", \"amax\" or "
        "\"amin\"");
  CHECK(message([&] { scatter(x, 0, at, x, "sum"); }) ==
        "scatter: reduce is \"sum\", expected \"add\" or \"multiply\"; scatter_reduce() has more");
  CHECK(message([&] { scatter_reduce(x > 0, 0, at, x > 0, "mean"); }) ==
        "scatter_reduce: mean of a bool tensor; convert it with .to(kFloat32) first");
  CHECK(message([&] { scatter_reduce(x, 0, ints({2}), x, "amax"); }) ==
        "scatter_reduce: index 2 at position 0 is out of range [0, 2)");
  CHECK(message([&] { scatter_reduce(x, 0, at, x.to(kFloat64), "sum"); }) ==
        "scatter_reduce: source is float64, the tensor float32");
}
