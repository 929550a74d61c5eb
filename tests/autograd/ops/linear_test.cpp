// linear() with an activation, and mlp(): fewer calls than separate ops, and the same results.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <limits>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/tracing_backend.h"

using namespace halftape;
using testing::same_bits;

namespace {

/// Input and parameters of an mlp(); unfused() computes it layer by layer.
struct MlpNet {
  Tensor x;
  TensorList w, b;
  MlpNet(Dtype d, const std::vector<int64_t>& sizes, int64_t rows = 7)
      : x(randn({rows, sizes[0]}, d)) {
    x.requires_grad_();
    for (size_t l = 1; l < sizes.size(); ++l) {
      w.push_back(randn({sizes[l], sizes[l - 1]}, d).requires_grad_());
      b.push_back(randn({sizes[l]}, d).requires_grad_());
    }
  }
  TensorList all() const {
    TensorList t{x};
    for (size_t l = 0; l < w.size(); ++l) t.push_back(w[l]), t.push_back(b[l]);
    return t;
  }
  Tensor unfused(Activation a) const {
    Tensor h = x;
    for (size_t l = 0; l < w.size(); ++l)
      h = linear(h, w[l], b[l], l + 1 < w.size() ? a : Activation::None);
    return h;
  }
};

constexpr Activation kCommonActivations[] = {Activation::None, Activation::Relu, Activation::Gelu};

}  // namespace

TEST_CASE("a layer with its activation is one call of the backend") {
  const Tensor x = ones({3, 4}), w = ones({5, 4}).requires_grad_(), b = ones({5});
  for (const Activation a : kCommonActivations) {
    (void)linear(x, w, b, a);  // on a GPU the first call also tests the library
    testing::TracingBackend trace;
    const Tensor y = linear(x, w, b, a);
    CHECK(trace.calls == std::vector<std::string>{"gemm"});
    CHECK(trace.count("gemm") == 1);
  }
}

TEST_CASE("backward of mlp is two products for each layer, which include the bias gradients") {
  for (const Activation a : kCommonActivations) {
    const MlpNet net(kFloat32, {4, 6, 5, 3});
    (void)autograd::grad({mlp(net.x, net.w, net.b, a)}, net.all(), {ones({7, 3})});
    testing::TracingBackend trace;
    const Tensor y = mlp(net.x, net.w, net.b, a);
    CHECK(trace.calls == std::vector<std::string>(3, "gemm"));
    const Tensor g = ones({7, 3});
    trace.clear();
    (void)autograd::grad({y}, net.all(), {g}, true);
    CHECK(trace.calls == std::vector<std::string>(6, "gemm"));
    // Only wanted gradients are computed, here those of the last layer's parameters.
    trace.clear();
    (void)autograd::grad({y}, {net.w[2], net.b[2]}, {g}, true);
    CHECK(trace.calls == std::vector<std::string>(1, "gemm"));
    trace.clear();
    (void)autograd::grad({y}, {net.b[1]}, {g});
    CHECK(trace.count("gemm") == 1);
  }
}

TEST_CASE("linear with ReLU has the bits of relu(linear(…)), forward and backward") {
  manual_seed(1);
  for (const Dtype d : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
    const MlpNet net(d, {9, 17});
    const Tensor one = linear(net.x, net.w[0], net.b[0], Activation::Relu),
                 two = relu(linear(net.x, net.w[0], net.b[0])), g = randn(one.sizes(), d);
    CHECK(same_bits(one, two));
    const TensorList first = autograd::grad({one}, net.all(), {g}),
                     second = autograd::grad({two}, net.all(), {g});
    for (size_t i = 0; i < first.size(); ++i) CHECK(same_bits(first[i], second[i]));
  }
}

TEST_CASE("linear applies GELU to the float sum, before it is rounded to half") {
  // Rounded to half, 1 + 2⁻¹¹ is a tie and becomes 1.
  const Tensor x = tensor({1.0, 0x1p-11}, kFloat16).view({1, 2}), w = ones({1, 2}, kFloat16);
  const Tensor y = linear(x, w, {}, Activation::Gelu);
  const Tensor exact = gelu(tensor({1.0 + 0x1p-11}, kFloat64), "tanh");
  CHECK(y.item() == exact.to(kFloat16).item());
  CHECK(y.item() != gelu(linear(x, w), "tanh").item());
}

TEST_CASE("mlp and its recorded gradients have the bits of single layers; others are close") {
  manual_seed(2);
  for (const Dtype d : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
    for (const Activation a : kCommonActivations) {
      const MlpNet net(d, {5, 9, 17, 3});
      const Tensor whole = mlp(net.x, net.w, net.b, a), parts = net.unfused(a),
                   g = randn(whole.sizes(), d);
      CHECK(same_bits(whole, parts));
      const TensorList of_parts = autograd::grad({parts}, net.all(), {g}, true),
                       recorded_parts = autograd::grad({parts}, net.all(), {g}, true, true),
                       recorded = autograd::grad({whole}, net.all(), {g}, true, true),
                       at_once = autograd::grad({whole}, net.all(), {g});
      for (size_t i = 0; i < of_parts.size(); ++i) {
        CAPTURE(i);
        CHECK(recorded[i].requires_grad() == recorded_parts[i].requires_grad());
        CHECK(same_bits(recorded[i], recorded_parts[i]));
        // mlp multiplies by GELU's derivative before rounding; ReLU's is 0 or 1. A GPU's library
        // adds up bias gradients in another order.
        const bool rounded_apart = a == Activation::Gelu && is_16bit(d);
        const double near = (rounded_apart ? 40 : 8) * epsilon(d);
        if (get_default_device().is_cpu() && !rounded_apart)
          CHECK(same_bits(at_once[i], of_parts[i]));
        else
          CHECK(at_once[i].to(kFloat64).allclose(of_parts[i].to(kFloat64), near, near));
      }
    }
  }
}

TEST_CASE("a weight may occur twice in an mlp, and its gradients are added") {
  const MlpNet net(kFloat64, {4, 4});
  const TensorList w{net.w[0], net.w[0]}, b{net.b[0], net.b[0]};
  const Tensor y = mlp(net.x, w, b), z = linear(relu(linear(net.x, w[0], b[0])), w[0], b[0]);
  for (const bool recorded : {true, false}) {
    const TensorList one = autograd::grad({y.sum()}, net.all(), {}, true, recorded),
                     two = autograd::grad({z.sum()}, net.all(), {}, true);
    for (size_t i = 0; i < one.size(); ++i) CHECK(one[i].allclose(two[i], 1e-12));
  }
}

TEST_CASE("frozen parameters of an mlp get no gradient, and the others get theirs") {
  MlpNet net(kFloat64, {4, 6, 5, 3});
  net.x.requires_grad_(false), net.w[0].requires_grad_(false), net.b[2].requires_grad_(false);
  const TensorList wanted{net.b[0], net.w[1], net.b[1], net.w[2]};
  for (const bool recorded : {true, false}) {
    const TensorList one =
                         autograd::grad({mlp(net.x, net.w, net.b).sum()}, wanted, {}, {}, recorded),
                     two = autograd::grad({net.unfused(Activation::Relu).sum()}, wanted);
    for (size_t i = 0; i < one.size(); ++i) CHECK(one[i].allclose(two[i], 1e-12));
  }
  mlp(net.x, net.w, net.b).sum().backward();
  CHECK_FALSE(net.w[0].grad().defined());
  CHECK(net.b[0].grad().defined());
}

TEST_CASE("NaN passes through the ReLU of every layer, and the gradient passes back") {
  for (const Dtype d : {kFloat16, kFloat32}) {
    const MlpNet net(d, {4, 6, 5, 3});
    Tensor x = net.x.detach().clone();
    x[2][1] = std::numeric_limits<double>::quiet_NaN();
    x.requires_grad_();
    const Tensor y = mlp(x, net.w, net.b);
    CHECK(y[2].isnan().all().item<bool>());
    CHECK_FALSE(y[1].isnan().any().item<bool>());
    y.sum().backward();
    CHECK(net.w[0].grad().isnan().any().item<bool>());
    CHECK(x.grad()[2].eq(x.grad()[2]).any().item<bool>());  // g·w, as ReLU passes g at NaN
  }
}

TEST_CASE("under autocast mlp runs in half, and its float32 gradients are not rounded to half") {
  for (const Activation a : kCommonActivations) {
    const Tensor x = ones({2049, 1}), w0 = ones({1, 1}, requires_grad()),
                 b0 = zeros({1}, requires_grad()), w1 = ones({1, 1}, requires_grad()),
                 b1 = zeros({1}, requires_grad());
    Tensor y;
    {
      const amp::autocast region(get_default_device().type(), kFloat16);
      y = mlp(x, {w0, w1}, {b0, b1}, a == Activation::Gelu ? Activation::Relu : a);
    }
    CHECK(y.dtype() == kFloat16);
    y.sum(kFloat32).backward();
    for (const Tensor& t : {w0, b0, w1, b1}) {
      CHECK(t.grad().dtype() == kFloat32);
      CHECK(t.grad().item() == 2049);
    }
  }
}

TEST_CASE("mlp refuses layers that do not fit, and the error names mlp") {
  const Tensor x = ones({2, 3}), w = ones({4, 3}), v = ones({2, 5});
  const auto refused = [](auto&& f, const char* text) {
    CHECK_THROWS_WITH_AS(f(), doctest::Contains(text), Error);
  };
  refused([&] { mlp(x, {}); }, "mlp: no weights");
  refused([&] { mlp(x, {w, v}); }, "mlp: input [2, 4] has 4 features, weight [2, 5] expects 5");
  refused([&] { mlp(x, {w}, {ones({4}), ones({4})}); }, "mlp: 2 biases for 1 weights");
  refused([&] { mlp(x, {w}, {ones({3})}); }, "mlp: bias [3], weight [4, 3] expects [4]");
  refused([&] { mlp(x, {w.to(kFloat64)}); }, "mlp: dtypes float32 and float64");
  refused([&] { mlp(x, {w, Tensor()}); }, "mlp");
  refused([&] { mlp(Tensor(), {w}); }, "mlp");
}
