// Gradients that overlap themselves or each other, as those that autograd::grad() returns may: no
// call changes their bytes twice.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>

#include "halftape/tests/support/lists.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/twice_in_place.h"

using namespace halftape;
using testing::message;
using testing::values;

namespace {

enum class Way : uint8_t { Step, Unscale, Async };

/// A step of SGD with learning rate 1 in which the gradients come from grad() and are assigned.
void step_with_assigned(const TensorList& params, const std::function<Tensor()>& loss, Way way) {
  auto sgd = std::make_unique<optim::SGD>(params, optim::SGDOptions(1));
  if (way == Way::Async) {
    optim::AsyncOptimizer optimizer(std::move(sgd));
    amp::AsyncGradScaler scaler({.init_scale = 1024});
    const TensorList g = autograd::grad({scaler.scale(loss())}, params);
    for (size_t i = 0; i < g.size(); ++i) params[i].mutable_grad() = g[i];
    scaler.step(optimizer, {.max_norm = 1e6});
    optimizer.synchronize();
    return;
  }
  amp::GradScaler scaler({.init_scale = 1024});
  const TensorList g = autograd::grad({scaler.scale(loss())}, params);
  for (size_t i = 0; i < g.size(); ++i) params[i].mutable_grad() = g[i];
  if (way == Way::Unscale) scaler.unscale_(*sgd);
  scaler.step(*sgd);
}

}  // namespace

TEST_CASE("an expanded gradient is divided by the scale once") {
  for (const Way way : {Way::Step, Way::Unscale, Way::Async}) {
    const Tensor w = ones({3, 4}, requires_grad());
    const Tensor v = arange(4).to(kFloat32);
    step_with_assigned(
        {w}, [&] { return (w.sum(Dims{0}) * v).sum(); }, way);
    for (int64_t row = 0; row < 3; ++row)
      CHECK(values(w.detach()[row]) == std::vector<double>{1, 0, -1, -2});
    const Tensor many = ones({1000}, requires_grad());
    step_with_assigned(
        {many}, [&] { return many.sum(); }, way);
    CHECK(many.detach().equal(zeros({1000})));
  }
}

TEST_CASE("two parameters' gradient in the same bytes is divided by the scale once") {
  for (const Way way : {Way::Step, Way::Unscale, Way::Async}) {
    const Tensor a = ones({2}, requires_grad()), b = ones({2}, requires_grad());
    step_with_assigned(
        {a, b}, [&] { return ((a + b) * ones({2})).sum(); }, way);
    CHECK(a.detach().equal(zeros({2})));
    CHECK(b.detach().equal(zeros({2})));
  }
}

TEST_CASE("one tensor as the gradient of two parameters, or parts that overlap, are clipped once") {
  const Tensor a = zeros({2}, requires_grad()), b = zeros({2}, requires_grad());
  const Tensor three = tensor({3., 0., 3.}, kFloat32);
  for (const bool parts : {false, true}) {
    a.mutable_grad() = parts ? three.slice(0, 0, 2) : full({2}, 3.);
    b.mutable_grad() = parts ? three.slice(0, 1, 3) : a.grad();
    const double norm = parts ? std::sqrt(18.) : 6;
    CHECK(nn::utils::clip_grad_norm_({a, b}, 1).item<double>() == doctest::Approx(norm));
    CHECK(a.grad()[0].item<double>() == doctest::Approx(3 / norm));
    CHECK(b.grad()[1].item<double>() == doctest::Approx(3 / norm));
  }
  a.mutable_grad() = full({2}, 3.).expand({2});
  b.mutable_grad() = tensor({3.f}).expand({2});
  nn::utils::clip_grad_value_({a, b}, 2);
  CHECK(values(b.grad()) == std::vector<double>{2, 2});
}

TEST_CASE("a gradient that is the scale itself leaves the scale alone") {
  const Tensor w = ones({1}, requires_grad());
  optim::SGD sgd({w}, optim::SGDOptions(1));
  amp::GradScaler scaler({.init_scale = 1024});
  (void)scaler.scale(w.sum());
  (void)scaler.factor();
  w.mutable_grad() = autograd::grad({scaler.scale(w.sum())}, {w})[0];
  scaler.unscale_(sgd);
  CHECK(scaler.get_scale() == 1024);
  CHECK(w.grad().item<double>() == 1);
}

TEST_CASE("gradients of their own stay in their bytes, and marks stay with them") {
  const Tensor a = ones({2}, requires_grad()), b = ones({2}, requires_grad());
  optim::SGD sgd({a, b}, optim::SGDOptions(1));
  amp::GradScaler scaler({.init_scale = 1024});
  scaler.scale((a * b).sum()).backward();
  const Tensor seen = a.grad();
  b.mutable_grad() = a.grad();
  // The mark says that it is scaled, also of the copy.
  CHECK(message([&] { nn::utils::clip_grad_norm_({a, b}, 1); }) != "");
  scaler.unscale_(sgd);
  CHECK(values(seen) == std::vector<double>{1, 1});
  CHECK(a.grad().const_data_ptr() == seen.const_data_ptr());
  CHECK(values(b.grad()) == std::vector<double>{1, 1});
  scaler.step(sgd);
  CHECK(values(b.detach()) == std::vector<double>{0, 0});
}

TEST_CASE("a rule between scale() and backward() may write to the gradient that it is given") {
  const Tensor x = full({}, 5.0, requires_grad());
  amp::GradScaler scaler({.init_scale = 8});
  testing::TwiceInPlace::apply(scaler.scale(x * 3)).backward();
  CHECK(x.grad().item() == 48);
}
