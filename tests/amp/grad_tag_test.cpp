// Gradients remember that they are scaled: through accumulation, checkpoints and clipping, until
// somebody changes them by hand.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>
#include <thread>

#include "halftape/autograd/record.h"

using namespace halftape;
using amp::GradScaler;

namespace {

/// A mark of no meaning, to see where it goes.
struct Name final : GradTag {
  std::string objection(const char* call) const override { return std::string(call) + ": no"; }
  std::string conflict(const GradTag* other) const override { return other ? "two marks" : ""; }
};

bool scaled(const Tensor& p) {
  const GradMark mark = mark_of(p.grad());
  return mark.known && mark.tag && !mark.tag->objection("").empty();
}

struct Fixture {
  Tensor w = ones({3}, requires_grad());
  optim::SGD optimizer{{w}, optim::SGDOptions(0.5)};
  GradScaler scaler{{.init_scale = 16}};
  void backward() { scaler.scale((w * w).sum()).backward(); }
};

}  // namespace

TEST_CASE("a scaled loss marks the gradients it leaves, and unscale_ takes the mark away") {
  Fixture f;
  CHECK_FALSE(mark_of(f.w.grad()).known);
  f.backward();
  CHECK(scaled(f.w));
  f.backward();  // the same scale: accumulated
  CHECK(scaled(f.w));
  CHECK(f.w.grad().equal(full({3}, 64.0)));
  f.scaler.unscale_(f.optimizer);
  CHECK_FALSE(scaled(f.w));
  CHECK_NOTHROW(nn::utils::clip_grad_norm_({f.w}, 1));
  CHECK(f.scaler.step(f.optimizer).applied());
}

TEST_CASE("unscaling by hand stays legal, in place or with a new tensor") {
  Fixture f;
  f.backward();
  f.w.grad().mul_(1 / f.scaler.get_scale());
  CHECK_FALSE(scaled(f.w));
  f.optimizer.step();
  CHECK(f.w.equal(zeros({3})));

  f.optimizer.zero_grad();
  f.w.detach().fill_(1);
  f.backward();
  f.w.mutable_grad() = f.w.grad() / f.scaler.get_scale();
  CHECK_FALSE(scaled(f.w));
  CHECK_NOTHROW(nn::utils::clip_grad_norm_({f.w}, 100));
  f.optimizer.step();
  CHECK(f.w.equal(zeros({3})));
}

TEST_CASE("a gradient assigned by hand is unscaled as if it were scaled") {
  Fixture f;
  f.scaler.scale(full({}, 1.0));
  f.w.mutable_grad() = full({3}, 16.0);
  CHECK(f.scaler.step(f.optimizer).applied());
  CHECK(f.w.equal(full({3}, 0.5)));
}

TEST_CASE("gradients filled with zeros are nobody's, and may receive those of the next scale") {
  Fixture f;
  for (int i = 0; i < 3; ++i) {
    f.optimizer.zero_grad(false);
    f.backward();
    CHECK(f.scaler.step(f.optimizer).applied());
    f.scaler.update();
  }
}

TEST_CASE("scaled gradients are clipped with a scaled norm on request, and stay scaled") {
  Fixture f;
  using nn::utils::ScaledGrads;
  f.backward();
  nn::utils::clip_grad_norm_({f.w}, 1.5 * 16, 2, false, ScaledGrads::Allow);
  nn::utils::clip_grad_value_({f.w}, 100.0 * 16, ScaledGrads::Allow);
  CHECK(scaled(f.w));
  CHECK_THROWS_AS(f.optimizer.step(), Error);
  CHECK(f.scaler.step(f.optimizer).applied());
  const double step = 0.5 * 1.5 / std::sqrt(3.0);
  CHECK(f.w.allclose(full({3}, 1 - step), 1e-6));
}

TEST_CASE("clipping does not make an unscaled gradient a stranger") {
  Fixture f;
  f.backward();
  f.scaler.unscale_(f.optimizer);
  nn::utils::clip_grad_norm_({f.w}, 1);
  CHECK_THROWS_WITH_AS(f.backward(), doctest::Contains("already unscaled"), Error);
}

TEST_CASE("gradients of two scales do not add up") {
  Fixture f;
  f.scaler.scale(full({}, 1.0));
  const Tensor late = f.scaler.scale((f.w * f.w).sum());
  Tensor other = ones({1}, requires_grad());
  optim::SGD second({other}, optim::SGDOptions(1.0));
  f.scaler.scale(other.sum()).backward();
  f.scaler.step(second);
  f.scaler.update();
  f.backward();
  CHECK_THROWS_WITH_AS(late.backward(), doctest::Contains("two different loss scales"), Error);
  CHECK(f.w.grad().equal(full({3}, 32.0)));
  f.optimizer.zero_grad();
  // Alone it is refused where it would be divided by the wrong scale.
  const Tensor stale = f.scaler.scale((f.w * f.w).sum());
  f.scaler.update(64.0);
  stale.backward();
  CHECK_THROWS_WITH_AS(f.scaler.unscale_(f.optimizer), doctest::Contains("scaled earlier"), Error);
}

TEST_CASE("two scalers are two scales") {
  Fixture f;
  GradScaler other({.init_scale = 4});
  f.backward();
  CHECK_THROWS_WITH_AS(other.scale(f.w.sum()).backward(), doctest::Contains("another scaler"),
                       Error);
  other.scale(f.w.sum());
  CHECK_THROWS_AS(other.unscale_(f.optimizer), Error);
  CHECK(f.scaler.step(f.optimizer).applied());
}

TEST_CASE("unscaled gradients may follow after unscale_: they are of one kind") {
  Fixture f;
  f.backward();
  f.scaler.unscale_(f.optimizer);
  f.w.sum().backward();
  CHECK(f.w.grad().equal(full({3}, 3.0)));
  CHECK(f.scaler.step(f.optimizer).applied());
}

TEST_CASE("grad() gives gradients without a mark, and leaves none behind") {
  Fixture f;
  const auto g = autograd::grad({f.scaler.scale((f.w * f.w).sum())}, {f.w});
  CHECK_FALSE(mark_of(g[0]).known);
  CHECK_FALSE(GradTag::Pass::current());
  f.w.sum().backward();  // no scale: no mark from the pass before
  CHECK_FALSE(scaled(f.w));
  CHECK_NOTHROW(f.optimizer.step());
}

TEST_CASE("a backward into chosen inputs, a deep one and one inside a rule mark their leaves too") {
  Fixture f;
  autograd::backward({f.scaler.scale((f.w * f.w).sum())}, {}, {}, false, TensorList{f.w});
  CHECK(scaled(f.w));

  struct Again : autograd::Function<Again> {
    static Tensor forward(autograd::AutogradContext* ctx, const Tensor& x, const Tensor& w) {
      ctx->save_for_backward({x, w});
      return x.detach() * w.detach();
    }
    static autograd::variable_list backward(autograd::AutogradContext* ctx,
                                            autograd::variable_list g) {
      const auto saved = ctx->get_saved_variables();
      const AutoGradMode recording(true);
      (saved[1] * saved[0].detach()).backward(g[0]);  // as a checkpoint would
      return {g[0] * saved[1].detach(), Tensor()};
    }
  };
  f.optimizer.zero_grad();
  const Tensor x = ones({3}, requires_grad());
  f.scaler.scale(Again::apply(x, f.w).sum()).backward();
  CHECK(scaled(x));
  CHECK(scaled(f.w));
}

TEST_CASE("each thread's pass has its own mark") {
  Fixture f;
  const Tensor other = ones({2}, requires_grad());
  const Tensor scaled_loss = f.scaler.scale((f.w * f.w).sum());
  f.w.register_hook([&](const Tensor& g) {
    std::thread([&] { other.sum().backward(); }).join();
    return g;
  });
  scaled_loss.backward();
  CHECK(scaled(f.w));
  CHECK_FALSE(scaled(other));
}

TEST_CASE("a mark set by any rule reaches the leaves, and two of them are in conflict") {
  GradTag::enable();
  const Tensor w = ones({2}, requires_grad());
  auto marked = [&](const Ref<GradTag>& tag) {
    return record("marked", w.array().clone(), {&w}, [tag](Node&, const Tensor& g) -> Grads {
      GradTag::mark_pass(tag);
      return {g};
    });
  };
  const Ref<GradTag> one = make_ref<Name>(), two = make_ref<Name>();
  marked(one).sum().backward();
  CHECK(mark_of(w.grad()).tag == one);
  CHECK_THROWS_WITH_AS(check_mark(w.grad(), "here"), "here: no", Error);
  CHECK_THROWS_WITH_AS(marked(two).sum().backward(), "backward: two marks", Error);
  CHECK_THROWS_WITH_AS((marked(one) + marked(two)).sum().backward(), "backward: two marks", Error);
  CHECK_FALSE(GradTag::Pass::current());
  w.sum().backward();
  CHECK(mark_of(w.grad()).tag == one);
  w.grad().add_(1);
  CHECK_FALSE(mark_of(w.grad()).known);
  CHECK_NOTHROW(check_mark(w.grad(), "here"));
}
