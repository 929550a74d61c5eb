// mlp_loss() equals mlp() and the loss, in value and derivatives; its dtypes and its scale.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/message.h"

using namespace halftape;
using testing::message;
using testing::relative_distance;

namespace {

constexpr Activation kAllActivations[] = {Activation::None, Activation::Relu, Activation::Gelu,
                                          Activation::Silu, Activation::Tanh, Activation::Sigmoid};

/// An MLP's parameters, and data for it.
struct LossNet {
  Tensor x, values, classes;
  TensorList w, b;
  explicit LossNet(Dtype d, Dtype parameters, const std::vector<int64_t>& sizes = {4, 6, 5, 3})
      : x(randn({7, sizes[0]}, d).requires_grad_()),
        values(randn({7, sizes.back()}, kFloat32)),
        classes(randint(0, sizes.back(), {7}, kInt64)) {
    for (size_t l = 1; l < sizes.size(); ++l) {
      w.push_back((randn({sizes[l], sizes[l - 1]}, parameters) * 0.7).detach().requires_grad_());
      b.push_back(randn({sizes[l]}, parameters).requires_grad_());
    }
  }
  TensorList all() const {
    TensorList t{x};
    for (size_t l = 0; l < w.size(); ++l) t.push_back(w[l]), t.push_back(b[l]);
    return t;
  }
  /// The same with float64 copies.
  LossNet in_float64() const {
    LossNet n = *this;
    const auto copy = [&](const Tensor& t) {
      return t.detach().to(x.dtype()).to(kFloat64).requires_grad_();
    };
    n.x = copy(x), n.values = values.to(kFloat64);
    for (size_t l = 0; l < w.size(); ++l) n.w[l] = copy(w[l]), n.b[l] = copy(b[l]);
    return n;
  }
  const Tensor& target(bool of_classes) const { return of_classes ? classes : values; }
  Tensor unfused(bool of_classes, Activation a) const {
    const Tensor y = mlp(x, w, b, a);
    return of_classes ? cross_entropy(y, classes) : mse_loss(y, values.to(y.dtype()));
  }
};

}  // namespace

TEST_CASE("mlp_loss equals mlp and the loss in every dtype, with all gradients") {
  manual_seed(11);
  for (const Dtype d : {kFloat64, kFloat32, kFloat16, kBFloat16})
    for (const Activation a : kAllActivations)
      for (const bool of_classes : {false, true}) {
        CAPTURE(d);
        CAPTURE(static_cast<int>(a));
        CAPTURE(of_classes);
        const LossNet net(d, d), exact = net.in_float64();
        const Tensor loss = mlp_loss(net.x, net.target(of_classes), net.w, net.b, a),
                     right = exact.unfused(of_classes, a);
        CHECK(loss.dtype() == (d == kFloat64 ? kFloat64 : kFloat32));
        const double allowed = 20 * epsilon(d);
        CHECK(relative_distance(loss.detach(), right.detach()) <= allowed);
        const TensorList got = autograd::grad({loss}, net.all()),
                         wanted = autograd::grad({right}, exact.all());
        for (size_t i = 0; i < got.size(); ++i) {
          CAPTURE(i);
          CHECK(got[i].dtype() == d);
          CHECK(relative_distance(got[i], wanted[i]) <= allowed);
        }
      }
}

TEST_CASE("mlp_loss can be differentiated twice, with one tensor as several weights") {
  manual_seed(12);
  for (const Dtype d : {kFloat64, kFloat16}) {
    const LossNet net(d, d, {5, 5, 5});
    const auto penalty = [&](const Tensor& loss, const Tensor& x, const Tensor& w) {
      const TensorList g = autograd::grad({loss}, {x, w}, {}, true, true);
      const Tensor sum = square(g[0].to(kFloat64)).sum() + square(g[1].to(kFloat64)).sum();
      return autograd::grad({sum}, {x, w});
    };
    const LossNet exact = net.in_float64();
    const TensorList got = penalty(
                         mlp_loss(net.x, net.values, {net.w[0], net.w[0]}, net.b, Activation::Gelu),
                         net.x, net.w[0]),
                     wanted = penalty(
                         mse_loss(mlp(exact.x, {exact.w[0], exact.w[0]}, exact.b, Activation::Gelu),
                                  exact.values),
                         exact.x, exact.w[0]);
    for (size_t i = 0; i < 2; ++i) CHECK(relative_distance(got[i], wanted[i]) <= 40 * epsilon(d));
  }
}

TEST_CASE("mlp_loss rounds float32 weights as it reads them, and gives float32 gradients") {
  manual_seed(13);
  const LossNet net(kFloat16, kFloat32), exact = net.in_float64();
  const Tensor loss = mlp_loss(net.x, net.classes, net.w, net.b),
               right = exact.unfused(true, Activation::Relu);
  // With a loss scale, gradients at the outputs are not subnormal.
  const Tensor scale = full({}, 1024, kFloat32);
  const TensorList got = autograd::grad({loss}, net.all(), {scale}),
                   wanted = autograd::grad({right}, exact.all(), {scale.to(kFloat64)});
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(got[i].dtype() == (i == 0 ? kFloat16 : kFloat32));
    CHECK(relative_distance(got[i], wanted[i]) <= 10 * epsilon(kFloat16));
  }
  // The float32 gradients have digits that float16 cannot hold.
  CHECK(!equal(got[1], got[1].to(kFloat16).to(kFloat32)));
}

TEST_CASE("under autocast mlp_loss takes float32 data, and its loss is float32") {
  manual_seed(14);
  for (const Dtype low : {kFloat16, kBFloat16})
    for (const bool wide : {false, true}) {  // wide: too wide for one call of the backend
      const LossNet net(kFloat32, kFloat32, {4, wide ? 130 : 6, 3}), exact = net.in_float64();
      const amp::autocast region(net.x.device().type(), low);
      const Tensor loss = mlp_loss(net.x, net.values, net.w, net.b);
      CHECK(loss.dtype() == kFloat32);
      const TensorList got = autograd::grad({loss}, net.all()),
                       wanted =
                           autograd::grad({exact.unfused(false, Activation::Relu)}, exact.all());
      for (size_t i = 0; i < got.size(); ++i) {
        CHECK(got[i].dtype() == kFloat32);
        CHECK(relative_distance(got[i], wanted[i]) <= 20 * epsilon(low));
      }
    }
}

TEST_CASE("mlp_loss takes batches of any rank, and adds to existing gradients") {
  manual_seed(15);
  const LossNet net(kFloat16, kFloat32);
  const Tensor flat = mlp_loss(net.x, net.values, net.w, net.b);
  const Tensor deep =
      mlp_loss(net.x.reshape({7, 1, 4}), net.values.reshape({7, 1, 3}), net.w, net.b);
  const Tensor none = mlp_loss(net.x[0], net.classes[0], net.w, {{}, net.b[1], {}});
  CHECK(flat.item<float>() == deep.item<float>());
  CHECK(none.sizes() == Shape{});
  flat.backward();
  const Tensor once = net.w[0].grad().clone();
  deep.backward();
  CHECK(equal(net.w[0].grad(), once * 2));
  {
    const NoGradGuard no_grad;
    CHECK(!mlp_loss(net.x, net.values, net.w, net.b).requires_grad());
  }
  const InferenceMode inference;
  CHECK(mlp_loss(net.x * 1, net.values, net.w, net.b).item<float>() == flat.item<float>());
}

TEST_CASE("mlp_loss with a scale computes gradients in forward, and backward multiplies them") {
  manual_seed(16);
  for (const Dtype low : {kFloat16, kBFloat16}) {
    const LossNet net(low, kFloat32);
    const Tensor x = net.x.detach(), scale = full({}, 512, kFloat32);
    const TensorList leaves{net.w[0], net.b[0], net.w[2], net.b[2]};
    const auto wanted = [&](double g) {  // without a scale in forward
      const Tensor loss = mlp_loss(net.x, net.classes, net.w, net.b);
      return autograd::grad({loss}, leaves, {full({}, g, kFloat32)});
    };
    const auto same = [](const TensorList& a, const TensorList& b, double times = 1) {
      for (size_t i = 0; i < a.size(); ++i) CHECK(equal(a[i], b[i] * times));
    };
    const Tensor loss = mlp_loss(x, net.classes, net.w, net.b, Activation::Relu, scale);
    same(autograd::grad({loss}, leaves, {scale.clone()}, true), wanted(512));
    // A second pass computes the gradients again. A factor of 4 rounds nothing.
    same(autograd::grad({loss}, leaves, {full({}, 256, kFloat32)}), wanted(256));
    const Tensor third = mlp_loss(x, net.classes, net.w, net.b, Activation::Relu, scale);
    same(autograd::grad({third}, leaves, {full({}, 2048, kFloat32)}), wanted(512), 4);
    // Only the gradient that is asked for is set.
    const Tensor fourth = mlp_loss(x, net.classes, net.w, net.b, Activation::Relu, scale);
    same(autograd::grad({fourth}, {net.w[0]}, {scale.clone()}), {wanted(512)[0]});
    CHECK(!net.b[0].grad().defined());
    // The scale may change between forward and backward.
    const Tensor moving = full({}, 512, kFloat32);
    const Tensor fifth = mlp_loss(x, net.classes, net.w, net.b, Activation::Relu, moving);
    moving.mul_(0.25);
    same(autograd::grad({fifth}, leaves, {moving.clone()}), wanted(128));
  }
  // bfloat16 needs no scale.
  const LossNet net(kBFloat16, kFloat32);
  const Tensor once = mlp_loss(net.x.detach(), net.values, net.w, net.b);
  const Tensor twice = mlp_loss(net.x, net.values, net.w, net.b);
  const TensorList a = autograd::grad({once}, net.w), b = autograd::grad({twice}, net.w);
  for (size_t i = 0; i < a.size(); ++i) CHECK(equal(a[i], b[i]));
}

TEST_CASE("mlp_loss says what does not fit") {
  const LossNet net(kFloat16, kFloat32);
  const auto refused = [&](auto&& f, const char* why) {
    const std::string said = message(f);
    CHECK_MESSAGE(said.find(why) != std::string::npos, said);
  };
  refused([&] { mlp_loss(net.x, net.values, {}); }, "mlp_loss: no weights");
  refused([&] { mlp_loss(net.x, net.values, net.w, {net.b[0]}); },
          "mlp_loss: 1 biases for 3 weights");
  refused(
      [&] {
        mlp_loss(net.x, net.values, {net.w[0], net.w[2]});
      },
      "mlp_loss: a weight [3, 5] where [3, 6] is expected");
  refused([&] { mlp_loss(net.x, net.classes.to(kInt32), net.w); }, "mlp_loss: target is int32");
  refused([&] { mlp_loss(net.x, net.values.slice(0, 0, 2), net.w); },
          "mlp_loss: target [2, 3] for outputs [7, 3]");
  refused(
      [&] {
        mlp_loss(net.x, net.values, {net.w[0].to(kBFloat16), net.w[1], net.w[2]});
      },
      "mlp_loss: mlp: dtypes float16 and bfloat16");
  refused([&] { mlp_loss(Tensor(), net.values, net.w); }, "mlp_loss");
  refused([&] { mlp_loss(net.x, net.values, net.w, {}, Activation::Relu, full({1}, 2, kFloat32)); },
          "mlp_loss: scale [1] of float32");
}
