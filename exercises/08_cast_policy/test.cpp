#include <start.h>

#include <doctest/doctest.h>
#include <halftape/amp/autocast.h>
#include <halftape/amp/policy.h>
#include <halftape/autograd/autograd.h>
#include <support/course.h>

#include <cmath>
#include <string>
#include <vector>

namespace {

using namespace halftape;

const std::vector<double> kInputs{-1000, -20, -3, -0.5, -0.001, 0, 0.001, 0.5, 3, 12, 20, 1000};

double right(double x) {
  return std::fabs(x) + std::log1p(std::exp(-2 * std::fabs(x))) - std::log(2.0);
}

Tensor inputs(Dtype dtype) { return tensor(kInputs).to(dtype).requires_grad_(); }

void expect_close(double got, double wanted, double tolerance, const std::string& what) {
  const bool close = std::fabs(got - wanted) <= tolerance * (1 + std::fabs(wanted));
  REQUIRE_MESSAGE(close, course::text(what, " is ", got, "; it should be ", wanted));
}

}  // namespace

TEST_CASE("in a float16 region ln cosh is computed in float32, also of a float16 input") {
  for (const Dtype dtype : {kFloat32, kFloat16}) {
    const amp::autocast region(kCPU, kFloat16);
    const Tensor x = inputs(dtype), y = LogCosh::apply(x);
    REQUIRE_MESSAGE(y.dtype() == kFloat32, course::text("the result is ", y.dtype()));
    for (size_t i = 0; i < kInputs.size(); ++i) {
      const double given = x[static_cast<int64_t>(i)].item<double>();
      expect_close(y[static_cast<int64_t>(i)].item<double>(), right(given), 1e-6,
                   course::text("ln cosh ", given));
    }
  }
}

TEST_CASE("its gradient is that of finite differences, times the gradient that arrives") {
  const Tensor x = inputs(kFloat32);
  (LogCosh::apply(x) * 3).sum().backward();
  for (size_t i = 0; i < kInputs.size(); ++i) {
    const double at = kInputs[i], slope = (right(at + 1e-5) - right(at - 1e-5)) / 2e-5;
    expect_close(x.grad()[static_cast<int64_t>(i)].item<double>(), 3 * slope, 1e-5,
                 course::text("the gradient of 3 ln cosh x at ", at));
  }
}

TEST_CASE("a float16 input in a region gets a float16 gradient") {
  const Tensor x = inputs(kFloat16);
  Tensor y;
  {
    const amp::autocast region(kCPU, kFloat16);
    y = LogCosh::apply(x);
  }
  y.sum().backward();
  REQUIRE_MESSAGE(x.grad().dtype() == kFloat16, course::text("the gradient is ", x.grad().dtype()));
  expect_close(x.grad()[0].item<double>(), -1, 1e-3, "the gradient at -1000");
}

TEST_CASE("under your policy exp2 of 17 is finite in a float16 region") {
  const Tensor x = full({1}, 17.0).to(kFloat16);
  const amp::autocast region(kCPU, kFloat16, policy());
  const Tensor y = exp2(x);
  CHECK_MESSAGE(y.item<double>() == 131072,
                course::text("2^17 is ", y.item<double>(), " in ", y.dtype()));
}

TEST_CASE("every other op has the row that it had") {
  amp::Policy mine = policy();
  CHECK_MESSAGE(mine.overrides(), "your policy is the standard one");
  mine.set("exp2", amp::Policy::standard().get("exp2"));
  CHECK_MESSAGE(!mine.overrides(), "your policy changes another op, too");
}
