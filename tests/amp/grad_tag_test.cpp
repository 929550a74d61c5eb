// Gradients remember that they are scaled: through accumulation, checkpoints and clipping, until
// somebody changes them by hand.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>
#include <thread>

#include "halftape/amp/gradients.h"
#include "halftape/autograd/tape/record.h"
#include "halftape/tests/support/message.h"

using namespace halftape;
using amp::GradScaler;
using testing::has;
using testing::message;

namespace {

/// A mark of no meaning, to see where it goes. Sums name their terms, in the order of arrival.
struct Name final : GradTag {
  explicit Name(std::string n) : name(std::move(n)) {}
  std::string objection(std::string_view call, Use use) const override {
    return use == Use::Unscaled ? std::string(call) + ": " + name : "";
  }
  Ref<GradTag> plus(const Ref<GradTag>& other) override {
    if (!other) return Ref<GradTag>(this);
    return make_ref<Name>(name + "+" + dynamic_cast<Name&>(*other).name);
  }
  const std::string name;
};

/// What a use of p's gradient is told, in place of the call's name; empty: it may be used.
std::string objection(const Tensor& p, GradTag::Use use) {
  const GradMark mark = mark_of(p.grad());
  return mark.tag ? mark.tag->objection("", use) : "";
}
bool mixed(const Tensor& p) { return !objection(p, GradTag::Use::Scaled).empty(); }
bool scaled(const Tensor& p) { return !objection(p, GradTag::Use::Unscaled).empty() && !mixed(p); }

struct TaggedTraining {
  Tensor w = ones({3}, requires_grad());
  optim::SGD optimizer{{w}, optim::SGDOptions(0.5)};
  GradScaler scaler{{.init_scale = 16}};
  void backward() { scaler.scale((w * w).sum()).backward(); }
  /// scaler.step(), after an update() and scale() if the optimizer has already stepped. Reaches
  /// both stages: Ready, and Unscaled if unscale_() came before.
  void step_or_update() {
    try {
      scaler.step(optimizer);
    } catch (const Error& e) {
      if (std::string(e.what()).find("call update() first") == std::string::npos) throw;
      scaler.update();
      scaler.scale(w.sum());
      scaler.step(optimizer);
    }
  }
};

}  // namespace

TEST_CASE("a scaled loss marks the gradients it leaves, and unscale_ takes the mark away") {
  TaggedTraining f;
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
  TaggedTraining f;
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
  TaggedTraining f;
  f.scaler.scale(full({}, 1.0));
  f.w.mutable_grad() = full({3}, 16.0);
  CHECK(f.scaler.step(f.optimizer).applied());
  CHECK(f.w.equal(full({3}, 0.5)));
}

TEST_CASE("a gradient whose bytes set_data() has replaced is the user's") {
  const Tensor w = ones({2}).requires_grad_();
  optim::SGD optimizer({w}, optim::SGDOptions(1));
  GradScaler scaler;
  scaler.scale(w.sum()).backward();
  w.grad().set_data(full({2}, 0.5));
  optimizer.step();
  CHECK(w.equal(full({2}, 0.5)));
}

TEST_CASE("gradients filled with zeros are nobody's, and may receive those of the next scale") {
  TaggedTraining f;
  for (int i = 0; i < 3; ++i) {
    f.optimizer.zero_grad(false);
    f.backward();
    CHECK(f.scaler.step(f.optimizer).applied());
    f.scaler.update();
  }
}

TEST_CASE("scaled gradients are clipped with a scaled norm on request, and stay scaled") {
  TaggedTraining f;
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
  TaggedTraining f;
  f.backward();
  f.scaler.unscale_(f.optimizer);
  nn::utils::clip_grad_norm_({f.w}, 1);
  f.backward();
  CHECK(mixed(f.w));
}

TEST_CASE("gradients of two scales add up to what nothing may use") {
  TaggedTraining f;
  f.scaler.scale(full({}, 1.0));
  const Tensor late = f.scaler.scale((f.w * f.w).sum());
  Tensor other = ones({1}, requires_grad());
  optim::SGD second({other}, optim::SGDOptions(1.0));
  f.scaler.scale(other.sum()).backward();
  f.scaler.step(second);
  f.scaler.update();
  f.backward();
  CHECK(scaled(f.w));
  late.backward();
  CHECK(f.w.grad().equal(full({3}, 64.0)));
  CHECK_THROWS_WITH_AS(f.scaler.step(f.optimizer), doctest::Contains("two different loss scales"),
                       Error);
  f.optimizer.zero_grad();
  // Alone it is refused where it would be divided by the wrong scale.
  const Tensor stale = f.scaler.scale((f.w * f.w).sum());
  f.scaler.update(64.0);
  stale.backward();
  CHECK_THROWS_WITH_AS(f.scaler.unscale_(f.optimizer), doctest::Contains("scaled earlier"), Error);
}

TEST_CASE("two scalers are two scales") {
  TaggedTraining f;
  GradScaler other({.init_scale = 4});
  f.backward();
  other.scale(f.w.sum());
  CHECK_THROWS_WITH_AS(other.unscale_(f.optimizer), doctest::Contains("scaled earlier"), Error);
  other.scale(f.w.sum()).backward();
  for (GradScaler* scaler : {&f.scaler, &other})
    CHECK_THROWS_WITH_AS(scaler->step(f.optimizer), doctest::Contains("another scaler"), Error);
  f.optimizer.zero_grad();
  f.backward();
  CHECK(f.scaler.step(f.optimizer).applied());
}

namespace {
/// use() throws an error of `call` with the reason, and changes neither weight nor gradient.
template <class Use>
void check_refused(const TaggedTraining& f, const char* call, const char* reason, const Use& use) {
  const Tensor w = f.w.detach().clone(), g = f.w.grad().clone();
  try {
    use();
    FAIL_CHECK(call, " was not refused");
  } catch (const Error& e) {
    const std::string message = e.what();
    CHECK_MESSAGE(message.find(call) == 0, message);
    CHECK_MESSAGE(message.find(reason) != std::string::npos, message);
    CHECK_MESSAGE(message.find("optimizer.zero_grad()") != std::string::npos, message);
  }
  CHECK(f.w.equal(w));
  CHECK(f.w.grad().equal(g));
}
}  // namespace

TEST_CASE("every use of a mixed gradient is refused with the reason, whatever is allowed") {
  using nn::utils::ScaledGrads;
  const char *plain = "one that was not scaled", *used = "had unscaled already",
             *two = "two different loss scales";
  // The reason, and how such a sum comes about.
  const std::pair<const char*, void (*)(TaggedTraining&)> ways[] = {
      {plain, [](TaggedTraining& f) { f.backward(), f.w.sum().backward(); }},
      {plain, [](TaggedTraining& f) { f.w.sum().backward(), f.backward(); }},
      {used, [](TaggedTraining& f) { f.backward(), f.scaler.unscale_(f.optimizer), f.backward(); }},
      {used, [](TaggedTraining& f) { f.backward(), f.scaler.step(f.optimizer), f.backward(); }},
      {two, [](TaggedTraining& f) { f.backward(), f.scaler.update(8.0), f.backward(); }},
      {two, [](TaggedTraining& f) { f.backward(), GradScaler().scale(f.w.sum()).backward(); }},
      {two,
       [](TaggedTraining& f) {
         (f.scaler.scale(f.w.sum()) + GradScaler().scale(f.w.sum())).backward();
       }},
  };
  for (const auto& way : ways) {
    const char* reason = way.first;
    CAPTURE(reason);
    TaggedTraining f;
    way.second(f);
    const auto refused = [&](const char* call, auto use) { check_refused(f, call, reason, use); };
    for (int again = 0; again < 2; ++again) {
      for (const auto allow : {ScaledGrads::Refuse, ScaledGrads::Allow}) {
        refused("clip_grad_norm_", [&] { nn::utils::clip_grad_norm_({f.w}, 1, 2, false, allow); });
        refused("clip_grad_value_", [&] { nn::utils::clip_grad_value_({f.w}, 1, allow); });
      }
      refused("Optimizer::step", [&] { f.optimizer.step(); });
      const Array one = full({}, 1, kFloat32, kCPU);
      refused("Optimizer::step", [&] { f.optimizer.step(StepControl{{}, one}); });
      f.scaler.scale(f.w.sum());
      refused("GradScaler::", [&] { f.step_or_update(); });
      GradScaler other;
      other.scale(f.w.sum());
      refused("GradScaler::unscale_", [&] { other.unscale_(f.optimizer); });
      refused("GradScaler::unscale_", [&] { other.step(f.optimizer); });
      f.w.sum().backward();  // a mixed gradient plus anything stays mixed, for its first reason
      f.scaler.scale(f.w.sum()).backward();
    }
    f.optimizer.zero_grad();
    f.w.sum().backward();
    CHECK_NOTHROW(f.optimizer.step());
  }
}

TEST_CASE("a mixed gradient that is changed or assigned by hand is the user's again") {
  TaggedTraining f;
  const auto mix = [&] { f.backward(), f.w.sum().backward(); };
  mix();
  f.w.grad().mul_(0.5);
  CHECK_FALSE(mixed(f.w));
  f.optimizer.zero_grad();
  mix();
  f.w.mutable_grad() = f.w.grad().clone();
  CHECK_FALSE(mixed(f.w));
  mix();
  CHECK(mixed(f.w));
  f.optimizer.zero_grad(false);
  f.backward();
  CHECK(f.scaler.step(f.optimizer).applied());
}

TEST_CASE("an optimizer that decides on the host does not step with a mixed gradient either") {
  struct OnHost final : optim::SGD {
    using SGD::SGD;
    bool supports_control() const override { return false; }
  };
  const Tensor w = ones({2}, requires_grad());
  OnHost optimizer(std::vector<Tensor>{w}, optim::SGDOptions(1.0));
  GradScaler scaler({.init_scale = 8});
  for (const bool overflows : {false, true}) {
    scaler.scale(w.sum() * (overflows ? HUGE_VAL : 1)).backward();
    scaler.unscale_(optimizer);
    scaler.scale(w.sum()).backward();
    CHECK_THROWS_WITH_AS(scaler.step(optimizer), doctest::Contains("had unscaled already"), Error);
    optimizer.zero_grad();
    scaler.update();
  }
  CHECK(w.equal(ones({2})));
}

TEST_CASE("a sum of two marks means the same in either order, and keeps the first reason") {
  using amp::ScaleTag;
  const Ref<GradTag> none, scaled = make_ref<ScaleTag>(), other = make_ref<ScaleTag>(),
                           unscaled = make_ref<ScaleTag>(zeros({}).array()),
                           further = make_ref<ScaleTag>(zeros({}).array()),
                           useless = make_ref<ScaleTag>("why");
  const struct {
    Ref<GradTag> a, b;
    const char* objection;  // to the use of true gradients; empty: none
  } rows[] = {{unscaled, none, ""},
              {unscaled, further, ""},
              {scaled, none, "of a scaled loss and of one that was not scaled were added"},
              {scaled, unscaled, "had unscaled already"},
              {scaled, other, "gradients of two different loss scales were added"},
              {useless, none, "here: why"},
              {useless, scaled, "here: why"},
              {useless, unscaled, "here: why"}};
  for (const auto& row : rows) {
    CAPTURE(row.objection);
    for (const bool turned : {false, true}) {
      const auto &a = turned ? row.b : row.a, &b = turned ? row.a : row.b;
      if (!a) continue;
      const std::string text = a->plus(b)->objection("here", GradTag::Use::Unscaled);
      CHECK(text.empty() == std::string(row.objection).empty());
      CHECK(text.find(row.objection) != std::string::npos);
    }
  }
}

TEST_CASE("unscaled gradients may follow after unscale_: they are of one kind") {
  TaggedTraining f;
  f.backward();
  f.scaler.unscale_(f.optimizer);
  f.w.sum().backward();
  CHECK(f.w.grad().equal(full({3}, 3.0)));
  CHECK(f.scaler.step(f.optimizer).applied());
}

TEST_CASE("grad() gives gradients with the mark of a scaled loss, and leaves none behind") {
  TaggedTraining f;
  const auto g = autograd::grad({f.scaler.scale((f.w * f.w).sum())}, {f.w});
  CHECK(mark_of(g[0]).tag);
  CHECK_FALSE(mark_of(autograd::grad({(f.w * f.w).sum()}, {f.w})[0]).known);
  CHECK_FALSE(GradTag::current());
  f.w.sum().backward();  // no scale: no mark from the pass before
  CHECK_FALSE(scaled(f.w));
  CHECK_NOTHROW(f.optimizer.step());
}

TEST_CASE("a backward into chosen inputs, a deep one and one inside a rule mark their leaves too") {
  TaggedTraining f;
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

TEST_CASE("a pass that a rule begins with its gradient is marked however deep it lies") {
  struct Deep : autograd::Function<Deep> {
    static Tensor forward(autograd::AutogradContext* ctx, const Tensor& x, int64_t depth) {
      ctx->save_for_backward({x});
      ctx->saved_data["depth"] = depth;
      return x.clone();
    }
    static autograd::variable_list backward(autograd::AutogradContext* ctx,
                                            autograd::variable_list g) {
      const Tensor x = ctx->get_saved_variables()[0];
      const int64_t depth = ctx->saved_data["depth"].toInt();
      const AutoGradMode recording(true);
      (depth > 0 ? Deep::apply(x, depth - 1) : x * 1).backward(g[0]);
      return {Tensor(), Tensor()};
    }
  };
  TaggedTraining f;
  f.scaler.scale(Deep::apply(f.w, int64_t{60}).sum()).backward();
  CHECK(scaled(f.w));
}

TEST_CASE("a pass that a hook begins without a gradient is of its own loss scaled or not") {
  for (int kind = 0; kind < 8; ++kind) {
    CAPTURE(kind);
    const bool is_scaled = kind & 1, made_before = kind & 2, of_leaf = kind & 4;
    TaggedTraining f;
    const Tensor q = ones({1}, requires_grad()), y = f.w * 2;
    optim::SGD all({f.w, q}, optim::SGDOptions(1));
    const auto make = [&] { return is_scaled ? f.scaler.scale((q * 3).sum()) : (q * 3).sum(); };
    const Tensor before = make();
    const auto nested = [&](const Tensor&) {
      const AutoGradMode recording(true);
      (made_before ? before : make()).backward();
    };
    if (of_leaf)
      f.w.register_post_accumulate_grad_hook(nested);
    else
      y.register_hook(nested);
    f.scaler.scale(y.sum()).backward();
    CHECK(scaled(f.w));
    CHECK(scaled(q) == is_scaled);
    const std::string refused = message([&] { f.scaler.step(all); });
    CHECK(has(refused, "is of a loss that was not scaled") == !is_scaled);
    CHECK(q.equal(full({1}, is_scaled ? -2.0 : 1.0)));
  }
}

TEST_CASE("each thread's pass has its own mark") {
  TaggedTraining f;
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

TEST_CASE("a mark set by any rule reaches the leaves, and two of them are added") {
  GradTag::enable();
  const Tensor w = ones({2}, requires_grad());
  auto marked = [&](const Ref<GradTag>& tag) {
    return record("marked", w.array().clone(), {&w}, [tag](Node&, const Tensor& g) -> Grads {
      GradTag::mark(tag);
      return {g};
    });
  };
  const Ref<GradTag> one = make_ref<Name>("one"), two = make_ref<Name>("two");
  marked(one).sum().backward();
  CHECK(mark_of(w.grad()).tag == one);
  CHECK_THROWS_WITH_AS(check_mark(w.grad(), "here"), "here: one", Error);
  CHECK_NOTHROW(check_mark(w.grad(), "here", GradTag::Use::Scaled));
  w.sum().backward();
  CHECK(mark_of(w.grad()).tag == one);
  marked(two).sum().backward();
  CHECK(objection(w, GradTag::Use::Unscaled) == ": one+two");
  w.mutable_grad() = Tensor();
  const Tensor first = marked(one), second = marked(two);
  (first + second).sum().backward();  // what was made last goes first
  CHECK_FALSE(GradTag::current());
  CHECK(objection(w, GradTag::Use::Unscaled) == ": two+one");
  w.grad().add_(1);
  CHECK_FALSE(mark_of(w.grad()).known);
  CHECK_NOTHROW(check_mark(w.grad(), "here"));
}
