// gradcheck and gradgradcheck: what they must refuse, element by element and in fast mode.
#include <doctest/doctest.h>

#include <limits>

#include "halftape/tests/support/message.h"

using namespace halftape;
using autograd::AutogradContext;
using autograd::gradcheck;
using autograd::GradcheckFunction;
using autograd::GradcheckOptions;
using autograd::gradgradcheck;
using testing::has;
using testing::message;

namespace {

const GradcheckOptions kModes[] = {{}, {.fast_mode = true}};

Tensor leaf(const std::vector<double>& values) { return tensor(values, kFloat64).requires_grad_(); }

/// x², whose gradient is 2x · factor.
struct Square : autograd::Function<Square> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& factor) {
    context->save_for_backward({x, factor});
    return x * x;
  }
  static TensorList backward(AutogradContext* context, TensorList g) {
    const TensorList saved = context->get_saved_variables();
    return {g[0] * 2 * saved[0] * saved[1], Tensor()};
  }
};

/// x³ with the right gradient 3x² and half the right second derivative.
struct Slope : autograd::Function<Slope> {
  static Tensor forward(AutogradContext* context, const Tensor& x) {
    context->save_for_backward({x});
    return 3 * x * x;
  }
  static TensorList backward(AutogradContext* context, TensorList g) {
    return {g[0] * 3 * context->get_saved_variables()[0]};
  }
};
struct Cube : autograd::Function<Cube> {
  static Tensor forward(AutogradContext* context, const Tensor& x) {
    context->save_for_backward({x});
    return x * x * x;
  }
  static TensorList backward(AutogradContext* context, TensorList g) {
    return {g[0] * Slope::apply(context->get_saved_variables()[0])};
  }
};

GradcheckFunction square(const std::vector<double>& factor) {
  return [=](const TensorList& in) { return Square::apply(in[0], tensor(factor, kFloat64)); };
}

}  // namespace

TEST_CASE("gradcheck refuses one wrong element, and errors that have the sum 0") {
  const TensorList x = {leaf({0.5, -1, 2})};
  for (const GradcheckOptions& mode : kModes) {
    CAPTURE(mode.fast_mode);
    CHECK(gradcheck(square({1, 1, 1}), x, mode));
    for (const std::vector<double>& factor : {std::vector<double>{1, 1, 1.01},
                                              {-1, 1, 1},
                                              {0, 1, 1},
                                              {1.5, 1.25, 1},  // +0.5 and −0.5
                                              {1, 2, 1.5}})    // −2 and +2
      CHECK(has(message([&] { gradcheck(square(factor), x, mode); }), "gradcheck: "));
  }
  CHECK(message([&] {
          gradcheck(square({1, 1, 2}), x);
        }) == "gradcheck: d output[2] / d input 0[2] is 8 by backward and 4 by finite differences");
  CHECK(has(message([&] {
              gradcheck(square({1, 1, 2}), x, kModes[1]);
            }),
            "gradcheck: the derivative along a direction of input 0 is "));
}

TEST_CASE("gradgradcheck refuses a wrong second derivative, which gradcheck cannot see") {
  const TensorList x = {leaf({0.5, -1, 2})};
  const auto cube = [](const TensorList& in) { return Cube::apply(in[0]); };
  for (const GradcheckOptions& mode : kModes) {
    CAPTURE(mode.fast_mode);
    CHECK(gradcheck(cube, x, mode));
    CHECK(has(message([&] { gradgradcheck(cube, x, mode); }), "gradcheck: "));
    CHECK(gradgradcheck([](const TensorList& in) { return in[0] * in[0] * in[0]; }, x, mode));
  }
}

TEST_CASE("each input that requires grad is checked, of any shape, and the others are left") {
  const auto product = [](const TensorList& in) { return in[0] * in[1] + in[2].to(kFloat64); };
  const auto second_wrong = [](const TensorList& in) {
    return in[0] + Square::apply(in[1], full({}, 2, kFloat64));
  };
  for (const GradcheckOptions& mode : kModes) {
    CAPTURE(mode.fast_mode);
    CHECK(gradcheck(product, {leaf({1, 2}), leaf({3, -4}), tensor({5, 6}, kFloat16)}, mode));
    CHECK(gradcheck([](const TensorList& in) { return in[0] * in[0]; },
                    {full({}, 3, kFloat64).requires_grad_()}, mode));
    CHECK(gradcheck([](const TensorList& in) { return in[0] * 2; }, {leaf({})}, mode));
    CHECK(has(message([&] {
                gradcheck(second_wrong, {leaf({1, 2}), leaf({3, -4})}, mode);
              }),
              "input 1"));
    CHECK(gradcheck(second_wrong, {leaf({1, 2}), tensor({3, -4}, kFloat64)}, mode));
    CHECK(message([&] { gradcheck(product, {tensor({1}, kFloat32).requires_grad_()}, mode); }) ==
          "gradcheck: input 0 is float32; finite differences need float64");
    CHECK(message([&] { gradcheck(product, {tensor({1}, kFloat64)}, mode); }) ==
          "gradcheck: no input requires grad");
  }
}

TEST_CASE("gradcheck takes no finite gradient for a difference that overflows") {
  const auto f = [](const TensorList& in) { return (in[0] * 1000).exp() * 1e-4; };
  for (const GradcheckOptions& mode : kModes)
    CHECK(has(message([&] { gradcheck(f, {leaf({0.7097827})}, mode); }), "inf by finite"));
}

TEST_CASE("gradcheck refuses options without sense, and records under NoGradGuard") {
  const TensorList x = {leaf({0.5, -1, 2})};
  const double inf = std::numeric_limits<double>::infinity(), nan = inf - inf;
  for (const double eps : {0.0, -1e-6, inf, nan})
    CHECK(has(message([&] { gradcheck(square({1, 1, 1}), x, {.eps = eps}); }), "eps"));
  for (const double wrong : {-1.0, inf, nan}) {
    CHECK(has(message([&] { gradcheck(square({1, 1, 1}), x, {.atol = wrong}); }), "a tolerance"));
    CHECK(has(message([&] { gradcheck(square({1, 1, 1}), x, {.rtol = wrong}); }), "a tolerance"));
  }
  CHECK(message([&] { gradcheck(nullptr, x); }) == "gradcheck: the function is empty");
  CHECK(message([&] { gradgradcheck(nullptr, x); }) == "gradgradcheck: the function is empty");
  const NoGradGuard guard;
  for (const GradcheckOptions& mode : kModes) CHECK(gradcheck(square({1, 1, 1}), x, mode));
}

TEST_CASE("gradcheck's fast mode calls f twice for an input, however large") {
  int calls = 0;
  const auto f = [&](const TensorList& in) { return ++calls, (in[0] * in[1]).sin(); };
  const Tensor x = linspace(-3, 3, 500, kFloat64).requires_grad_();
  CHECK(gradcheck(f, {x, x.detach().flip({0}).requires_grad_()}, {.fast_mode = true}));
  CHECK(calls == 5);
}
