#include <doctest/doctest.h>

#include <memory>
#include <sstream>

#include <halftape/halftape.h>

#include "halftape/tests/support/warnings.h"

using namespace halftape;
using amp::autocast;
using amp::CastPlan;

namespace {
CastPlan::Step step(const CastPlan& plan, const std::string& op) {
  for (const CastPlan::Step& s : plan.steps)
    if (s.op == op) return s;
  FAIL("the plan has no ", op);
  return {};
}
}  // namespace

TEST_CASE("explain says of every op what it was given, what it ran in, and why") {
  const Tensor x = rand({2, 4}), w = rand({3, 4}, requires_grad()), b = rand({3});
  const CastPlan plan = amp::explain([&] {
    const autocast region(kCPU, kFloat16, amp::Policy().set("tanh", Cast::Float32));
    const Tensor h = linear(x, w, b);
    (void)(tanh(h) + h);
    (void)dot(x[0], h.to(kFloat32).flatten().slice(0, 0, 4));
    (void)softmax(h, -1, kFloat32);
    (void)relu(h);
  });
  const CastPlan::Step product = step(plan, "linear");
  CHECK(product.dtype == kFloat16);
  CHECK(product.why == "list: Lower");
  REQUIRE(product.inputs.size() == 3);
  CHECK(product.inputs[1].shape == Shape{3, 4});
  CHECK(product.inputs[1].given == kFloat32);
  CHECK(product.inputs[1].used == kFloat16);
  CHECK(step(plan, "tanh").why == "user rule: Float32");
  CHECK(step(plan, "tanh").dtype == kFloat32);
  CHECK(step(plan, "add").why == "promotion");
  CHECK(step(plan, "add").dtype == kFloat32);
  CHECK(step(plan, "dot").why == "list: Widest");
  CHECK(step(plan, "softmax").why == "dtype argument");
  CHECK(step(plan, "relu").why == "as given");
  CHECK(plan.casts() == 4);  // three of linear, one of tanh
}

TEST_CASE("explain counts the values of float32 inputs that the lower dtype cannot hold") {
  const Tensor x = tensor({1e5, -1e30, 1e-9, 0.0, 1.0}, kFloat32).reshape({1, 5});
  for (const Dtype lower : {kFloat16, kBFloat16}) {
    const CastPlan plan = amp::explain([&] {
      const autocast region(kCPU, lower);
      (void)matmul(x, ones({5, 1}, lower));
      (void)(x + 1);
    });
    for (const char* op : {"matmul", "affine"}) {
      const CastPlan::Input in = step(plan, op).inputs[0];
      CHECK(in.overflows == (lower == kFloat16 ? 2 : 0));
      CHECK(in.vanishes == (lower == kFloat16 ? 1 : 0));
    }
  }
}

TEST_CASE("equal steps in a row are one line with a count, and the table has a line for each") {
  const Tensor x = full({2}, 1e6), h = ones({2}, kFloat16);
  CastPlan plan;
  {
    const autocast region(kCPU, kFloat16);
    (void)exp(x);  // before the recorder: not seen
    const amp::CastRecorder recorder(plan);
    for (int i = 0; i < 3; ++i) (void)exp(h);
    (void)relu(x);
  }
  REQUIRE(plan.steps.size() == 2);
  CHECK(plan.steps[0].count == 3);
  CHECK(plan.casts() == 3);
  std::ostringstream table;
  table << plan;
  CHECK(table.str() ==
        "op      runs in  why            casts                   would not fit\n"
        "exp x3  float32  list: Float32  [2] float16 to float32\n"
        "relu    float32  as given                               [2]: 2 to inf, 0 to 0\n");
}

TEST_CASE("steps that differ in dtype, reason or inputs have lines of their own") {
  const CastPlan plan = amp::explain([&] {
    const autocast region(kCPU, kFloat16);
    (void)relu(ones({2})), (void)relu(ones({2}, kFloat16)), (void)relu(ones({3}, kFloat16));
    (void)softmax(ones({2}), -1), (void)softmax(ones({2}), -1, kFloat32);
    (void)matmul(full({2, 2}, 1e6), full({2, 2}, 1e-9));
  });
  std::ostringstream table;
  table << plan;
  CHECK(table.str() ==
        "op       runs in  why             casts                                                 "
        "would not fit\n"
        "relu     float32  as given\n"
        "relu     float16  as given\n"
        "relu     float16  as given\n"
        "softmax  float32  list: Float32\n"
        "softmax  float32  dtype argument\n"
        "matmul   float16  list: Lower     [2, 2] float32 to float16, [2, 2] float32 to float16  "
        "[2, 2]: 4 to inf, 0 to 0; [2, 2]: 0 to inf, 4 to 0\n");
}

TEST_CASE("explaining changes no bit, and ends with its scope") {
  const Tensor x = randn({4, 4}), w = randn({4, 4}, requires_grad());
  auto run = [&] {
    const autocast region(kCPU, kFloat16);
    return autograd::grad({softmax(tanh(linear(x, w)), -1).square().mean()}, {w})[0];
  };
  const Tensor plain = run();
  Tensor explained;
  const CastPlan plan = amp::explain([&] { explained = run(); });
  CHECK(explained.equal(plain));
  const size_t steps = plan.steps.size();
  (void)run();
  CHECK(plan.steps.size() == steps);
  CastPlan inner;
  const CastPlan outer = amp::explain([&] {
    inner = amp::explain(run);
    (void)run();
  });
  CHECK(inner.steps.size() == steps);
  CHECK(outer.steps.size() == steps);  // what an inner one records is not for the outer one
  CHECK(amp::explain([&] { (void)exp(x); }).steps.empty());  // no region: nothing to explain
  CHECK_FALSE(amp::is_autocast_enabled(kCPU));
}

TEST_CASE("recorders that end out of order leave none behind") {
  const testing::Warnings warnings;
  const Tensor x = ones({2, 2});
  auto outer_plan = std::make_unique<CastPlan>();
  CastPlan inner_plan;
  auto outer = std::make_unique<amp::CastRecorder>(*outer_plan);
  auto inner = std::make_unique<amp::CastRecorder>(inner_plan);
  const autocast region(kCPU, kFloat16);
  outer.reset();
  outer_plan.reset();
  (void)matmul(x, x);
  CHECK(inner_plan.steps.size() == 1);
  inner.reset();
  (void)matmul(x, x);  // observed by nobody
  CHECK(inner_plan.steps.size() == 1);
}
