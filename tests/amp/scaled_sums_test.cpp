// Losses that are scaled twice, or added to unscaled ones, before backward(): each gradient has the
// mark of what it is a sum of. And right programs that look like them.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <functional>
#include <string>

using namespace halftape;
using amp::GradScaler;

namespace {

/// Two weights, an optimizer for each, and a loss in one or both.
struct TwoWeights {
  Tensor w = tensor({1.0, 2.0}, requires_grad()), v = tensor({3.0, 5.0}, requires_grad());
  optim::SGD of_w{{w}, optim::SGDOptions(0.25)}, of_v{{v}, optim::SGDOptions(0.25)};
  GradScaler scaler{{.init_scale = 16}}, other{{.init_scale = 64}};
  Tensor a() const { return (w * w).sum(); }
  Tensor b() const { return (w * v).sum(); }
  Tensor c() const { return (v * v).sum(); }
  Tensor scale(const Tensor& loss) { return scaler.scale(loss); }
};
using Block = std::function<Tensor(const TensorList&)>;
using Loss = std::function<Tensor(TwoWeights&)>;

/// The message of the error that f throws, or "".
std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

void check_refused(const Loss& loss, const char* reason, bool added) {
  CAPTURE(added);
  TwoWeights f;
  if (added) f.scale(f.a()).backward();
  loss(f).backward();
  for (const auto& use : {std::function<void()>([&] { f.scaler.unscale_(f.of_w); }),
                          std::function<void()>([&] { f.scaler.step(f.of_w); }),
                          std::function<void()>([&] { f.of_w.step(); }),
                          std::function<void()>([&] { nn::utils::clip_grad_norm_({f.w}, 1); })}) {
    const std::string said = refusal(use);
    CHECK_MESSAGE(said.find(reason) != std::string::npos, said);
    CHECK(said.find("call optimizer.zero_grad()") != std::string::npos);
  }
  CHECK(f.w.equal(tensor({1.0, 2.0})));
  // Forgotten, it does no harm.
  f.of_w.zero_grad();
  f.scale(f.a()).backward();
  CHECK(f.scaler.step(f.of_w).applied());
}

}  // namespace

TEST_CASE("a loss that is scaled twice is refused when its gradients are used") {
  const Loss wrong[] = {
      [](TwoWeights& f) { return f.scale(f.scale(f.a())); },
      [](TwoWeights& f) { return f.scale(f.scale(f.a()) / 4); },  // for four micro-batches
      [](TwoWeights& f) { return f.scale(f.scale(f.a()) + f.b()); },
      [](TwoWeights& f) {
        return f.scale(stack({f.scale(f.a()), f.scale(f.b())}).mean());
      },
      [](TwoWeights& f) { return f.other.scale(f.scale(f.a())); },
      [](TwoWeights& f) { return f.scale(f.scale(f.scale(f.a()))); },
      [](TwoWeights& f) {
        const Tensor inner = f.scale(f.a());
        f.scaler.update(8.0);
        return f.scale(inner);
      },
      [](TwoWeights& f) {
        return f.scale(autograd::checkpoint(
            Block([&](const TensorList& in) { return f.scale((in[0] * in[0]).sum()); }), {f.w}));
      },
  };
  for (const bool added : {false, true})  // to a gradient that is scaled as it should
    for (const Loss& loss : wrong) check_refused(loss, "scaled twice", added);
}

TEST_CASE("a scaled loss plus an unscaled one is refused where their gradients meet") {
  const Loss wrong[] = {
      [](TwoWeights& f) { return f.scale(f.a()) + f.b(); },
      [](TwoWeights& f) { return f.a() + f.scale(f.b()); },
      [](TwoWeights& f) { return f.scale(f.a()) + (f.w * f.w).sum() * 1e-4; },  // weight decay
      [](TwoWeights& f) {
        return stack({f.scale(f.a()), f.b()}).sum();
      },
      [](TwoWeights& f) {
        return cat({f.scale(f.a()).reshape({1}), f.w * 2}).sum();
      },
      [](TwoWeights& f) {  // a part of the model is in both
        const Tensor hidden = tanh(f.w);
        return f.scale(hidden.sum()) + (hidden * hidden).sum();
      },
  };
  for (const bool added : {false, true})
    for (const Loss& loss : wrong) check_refused(loss, "one that was not scaled were added", added);
}

TEST_CASE("a backward pass of two losses, one scaled: each weight's gradient is what it is") {
  TwoWeights f;
  (f.scale(f.a()) + f.c()).backward();
  CHECK(refusal([&] { f.scaler.step(f.of_v); }).find("of a loss that was not scaled") !=
        std::string::npos);
  CHECK(refusal([&] { f.of_w.step(); }).find("still multiplied") != std::string::npos);
  CHECK(f.scaler.step(f.of_w).applied());
  f.of_v.step();
  CHECK(f.w.equal(tensor({0.5, 1.0})));
  CHECK(f.v.equal(tensor({1.5, 2.5})));
}

TEST_CASE("a backward pass of two losses of two scalers: each scaler steps with its own") {
  TwoWeights f;
  (f.scale(f.a()) + f.other.scale(f.c())).backward();
  CHECK(refusal([&] { f.scaler.step(f.of_v); }).find("scaled since the last update()") !=
        std::string::npos);
  CHECK(f.scaler.step(f.of_w).applied());
  CHECK(f.other.step(f.of_v).applied());
  CHECK(f.w.equal(tensor({0.5, 1.0})));
  CHECK(f.v.equal(tensor({1.5, 2.5})));
}

TEST_CASE("right programs that look like these are not refused") {
  // Each gives the gradient of w², 2w.
  const std::function<void(TwoWeights&)> right[] = {
      [](TwoWeights& f) {  // micro-batches
        for (int i = 0; i < 4; ++i) f.scale(f.a() / 4).backward();
      },
      [](TwoWeights& f) { f.scale(f.a() / 2 + f.a() / 2).backward(); },
      [](TwoWeights& f) { (f.scale(f.a() / 2) + f.scale(f.a() / 2)).backward(); },
      [](TwoWeights& f) { (f.scale(f.a()) * 2 - f.scale(f.a())).backward(); },
      [](TwoWeights& f) {
        stack(f.scaler.scale(TensorList{f.a(), f.a()})).mean().backward();
      },
      [](TwoWeights& f) { f.scale(f.a() + f.scale(f.a()).detach()).backward(); },
      [](TwoWeights& f) { (f.scale(f.a()) + f.c().detach()).backward(); },
      [](TwoWeights& f) { f.scale(f.w * f.w).sum().backward(); },
      [](TwoWeights& f) {
        const Tensor scaled = f.scale(f.a());
        autograd::grad({scaled}, {f.w}, {}, true);
        scaled.backward();
      },
      [](TwoWeights& f) {  // part of the backward pass by hand
        const Tensor y = f.w * f.w;
        y.backward(autograd::grad({f.scale(y.sum())}, {y}, {}, true)[0]);
        f.w.mutable_grad() = f.w.grad().clone();  // without a mark, as the gradient of y
      },
      [](TwoWeights& f) { autograd::backward({f.scale(f.a())}, {}, {}, false, TensorList{f.w}); },
      [](TwoWeights& f) {
        f.scale(autograd::checkpoint(
                    Block([](const TensorList& in) { return (in[0] * in[0]).sum(); }), {f.w}))
            .backward();
      },
  };
  for (size_t i = 0; i < std::size(right); ++i) {
    CAPTURE(i);
    for (const bool unscales : {false, true}) {
      TwoWeights f;
      right[i](f);
      if (unscales) f.scaler.unscale_(f.of_w);
      CHECK(f.scaler.step(f.of_w).applied());
      CHECK(f.w.equal(tensor({0.5, 1.0})));
    }
  }
}

TEST_CASE("a gradient penalty from unscaled gradients joins the loss before scale()") {
  // As in torch's recipe, where the penalty's gradients are divided by hand.
  TwoWeights f;
  const Tensor scaled = autograd::grad({f.scale(f.a())}, {f.w}, {}, true, true)[0];
  const Tensor penalty = pow(scaled * (1 / f.scaler.get_scale()), 2).sum();
  f.scale(f.a() + penalty).backward();
  CHECK(f.scaler.step(f.of_w).applied());
  CHECK(f.w.equal(tensor({1 - 0.25 * 10, 2 - 0.25 * 20})));  // w² + 4w²: 10w
}

TEST_CASE("what grad() of a scaled loss gives is known to be scaled where it is assigned") {
  TwoWeights f;
  f.w.mutable_grad() = autograd::grad({f.scale(f.a())}, {f.w})[0];
  CHECK_THROWS_WITH_AS(nn::utils::clip_grad_norm_({f.w}, 1),
                       doctest::Contains("still multiplied by the loss scale"), Error);
  CHECK_THROWS_WITH_AS(f.of_w.step(), doctest::Contains("still multiplied by the loss scale"),
                       Error);
  CHECK(f.scaler.step(f.of_w).applied());
}
