// An Inspector believes the scaler about which steps were skipped, and sees gradients of parameters
// in whatever dtype they arrive.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>

#include "halftape/tests/support/warnings.h"

using namespace halftape;
using amp::Inspector;

namespace {

/// One weight of that value, and no bias.
nn::Linear linear_of(double weight) {
  nn::Linear fc(nn::LinearOptions(1, 1).bias(false));
  const NoGradGuard no_grad;
  fc->weight.fill_(weight);
  return fc;
}

}  // namespace

TEST_CASE("a parameter's gradient that arrives in 16 bits is counted as a parameter's") {
  const testing::Warnings alarms;
  nn::Sequential model{{"conv1", nn::Conv2d(nn::Conv2dOptions(1, 1, 1).bias(false))}};
  optim::SGD optimizer(model->parameters(), optim::SGDOptions(0.1));
  amp::GradScaler scaler;
  Inspector inspector(*model, scaler, {.every = 1, .shadow_every = 1, .optimizer = &optimizer});
  const auto loss = [&] {
    const amp::autocast region(kCPU, kFloat16);
    return model->forward(ones({1, 1, 64, 64})).to(kFloat32).mean();
  };
  // Each of 4,096 places gives 16, and their sum, 65,536, is beyond float16.
  scaler.scale(loss()).backward();
  CHECK_FALSE(scaler.step(optimizer).applied());
  scaler.update();
  inspector.step(loss);
  REQUIRE(inspector.overflows().size() == 1);
  const amp::Overflow o = *inspector.last_overflow();
  CHECK(o.where == amp::Overflow::Where::Backward);
  CHECK(o.op == "conv2d");
  CHECK(o.module == "conv1");
  CHECK(o.dtype == kFloat16);
  CHECK(o.parameter == "conv1.weight");
  CHECK(o.largest_scale_that_passes == 32768);
  bool has_error = false;
  for (const amp::LedgerRow& row : inspector.rows()) has_error |= row.error.has_value();
  CHECK(has_error);
}

TEST_CASE("a step that the scaler has applied was not skipped") {
  SUBCASE("though the gradient of an input is infinite") {
    const nn::Linear fc = linear_of(2);
    optim::SGD optimizer(fc->parameters(), optim::SGDOptions(1e-6));
    amp::GradScaler scaler(amp::GradScalerOptions::fixed(40000));
    Inspector inspector(*fc, scaler);
    const Tensor x = ones({1, 1}, kFloat16).requires_grad_();
    Tensor y;
    {
      const amp::autocast region(kCPU, kFloat16);
      y = fc->forward(x);
    }
    scaler.scale(y.to(kFloat32).sum()).backward();
    REQUIRE(std::isinf(x.grad().item<double>()));
    CHECK(scaler.step(optimizer).applied());
    scaler.update();
    inspector.step();
    CHECK(inspector.overflows().empty());
  }
  SUBCASE("though the loss overflows once it is scaled") {
    const nn::Linear fc = linear_of(3);
    optim::SGD optimizer(fc->parameters(), optim::SGDOptions(1e-6));
    amp::GradScaler scaler(amp::GradScalerOptions::fixed(32768));
    Inspector inspector(*fc, scaler);
    const amp::autocast region(kCPU, kFloat16);
    const Tensor y = fc->forward(ones({1, 1}));
    scaler.scale(y).backward(ones({1, 1}, kFloat16));
    CHECK(scaler.step(optimizer).applied());
    scaler.update();
    inspector.step();
    CHECK(inspector.overflows().empty());
  }
}

TEST_CASE("without a scaler a step is not computed again, as its weights have moved") {
  const nn::Linear fc = linear_of(1);
  optim::SGD optimizer(fc->parameters(), optim::SGDOptions(0.1));
  const amp::GradScaler none({.enabled = false});
  Inspector inspector(*fc, none, {.shadow_every = 0});
  int calls = 0;
  const auto loss = [&] {
    ++calls;
    const amp::autocast region(kCPU, kFloat16);
    return fc->forward(ones({1, 1})).to(kFloat32).sum() * 70000;
  };
  loss().backward();
  optimizer.step();
  inspector.step(loss);
  REQUIRE(inspector.overflows().size() == 1);
  CHECK_FALSE(inspector.last_overflow()->largest_scale_that_passes.has_value());
  CHECK(calls == 1);  // the training's own
}

TEST_CASE("samples are dropped behind one whose closure threw, too") {
  const nn::Linear fc = linear_of(1);
  optim::SGD optimizer(fc->parameters(), optim::SGDOptions(0.1));
  amp::GradScaler scaler;
  Inspector inspector(*fc, scaler, {.every = 1, .shadow_every = 50, .kept = 2});
  const auto train = [&] {
    optimizer.zero_grad();
    scaler.scale(fc->forward(ones({1, 1})).sum()).backward();
    scaler.step(optimizer);
    scaler.update();
  };
  train();
  CHECK_THROWS_WITH(inspector.step([]() -> Tensor { throw Error("once"); }), "once");
  for (int i = 0; i < 10; ++i) {
    train();
    inspector.step();
  }
  CHECK(inspector.rows().front().step == inspector.steps() - 2);
}
