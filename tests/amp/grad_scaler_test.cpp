#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <optional>

#include "halftape/tests/support/nonfinite.h"
#include "halftape/tests/support/poke.h"
#include "halftape/tests/support/tracing_backend.h"

using namespace halftape;
using amp::GradScaler;
using amp::GradScalerOptions;
using testing::kInf, testing::kNaN;

namespace {

GradScalerOptions options(double scale, int64_t interval = 1) {
  GradScalerOptions o;
  o.init_scale = scale;
  o.growth_interval = interval;
  return o;
}

/// Two parameters in two groups, whose gradients the test sets by hand.
struct Case {
  Tensor a = ones({3}, requires_grad()), b = full({2, 2}, 2.0, requires_grad());
  optim::SGD optimizer{
      std::vector<optim::OptimizerParamGroup>{optim::OptimizerParamGroup(std::vector<Tensor>{a}),
                                              optim::OptimizerParamGroup(std::vector<Tensor>{b})},
      optim::SGDOptions(0.1).momentum(0.9)};
  void backward(GradScaler& scaler) {
    optimizer.zero_grad();
    scaler.scale((a * a).sum() + (b * b).sum()).backward();
  }
  amp::StepResult train(GradScaler& scaler, bool bad = false) {
    backward(scaler);
    if (bad) testing::poke(a.grad(), 0, kInf);
    amp::StepResult result = scaler.step(optimizer);
    scaler.update();
    return result;
  }
};

}  // namespace

TEST_CASE("scale multiplies the loss and step divides the gradients again") {
  Case c;
  GradScaler scaler(options(1024, 100));
  c.backward(scaler);
  CHECK(c.a.grad().equal(full({3}, 2048.0)));
  scaler.unscale_(c.optimizer);
  CHECK(c.a.grad().equal(full({3}, 2.0)));
  const auto result = scaler.step(c.optimizer);
  CHECK(result.applied());
  CHECK_FALSE(result.found_inf());
  scaler.update();
  CHECK(c.a.allclose(full({3}, 0.8), epsilon(kFloat32)));
  CHECK(c.b.allclose(full({2, 2}, 1.6), epsilon(kFloat32)));
}

TEST_CASE(
    "one infinite gradient skips the step bit for bit and halves the scale, wherever it stands") {
  for (const double bad : {kInf, -kInf, kNaN}) {
    for (const int where : {0, 1, 2, 3}) {
      Case c;
      GradScaler scaler(options(1024, 100));
      c.backward(scaler);
      scaler.step(c.optimizer);  // a good step first, so that there is momentum to protect
      scaler.update();
      const Tensor a = c.a.detach().clone(), b = c.b.detach().clone();
      const auto state = c.optimizer.state_dict();
      c.backward(scaler);
      Tensor g = where < 3 ? c.a.grad() : c.b.grad();
      testing::poke(g, where % 3, bad);
      const auto result = scaler.step(c.optimizer);
      CHECK(result.found_inf());
      CHECK_FALSE(result.applied());
      scaler.update();
      CHECK(c.a.equal(a));
      CHECK(c.b.equal(b));
      const auto after = c.optimizer.state_dict();
      for (size_t i = 0; i < state.state.size(); ++i)
        for (const auto& [key, value] : state.state[i])
          CHECK(Tensor(after.state[i].at(key)).equal(Tensor(value)));
      CHECK(scaler.get_scale() == 512);
      CHECK(scaler.get_growth_tracker() == 0);
    }
  }
}

TEST_CASE("a skipped first step leaves no momentum behind") {
  Case plain, skipped;
  GradScaler one(options(4, 100)), two(options(4, 100));
  skipped.backward(two);
  testing::poke(skipped.a.grad(), 0, kInf);
  two.step(skipped.optimizer);
  two.update(4.0);
  for (int i = 0; i < 3; ++i) {
    plain.train(one);
    skipped.train(two);
  }
  CHECK(plain.a.equal(skipped.a));
  CHECK(plain.b.equal(skipped.b));
}

TEST_CASE("the scale grows exactly at the interval and the counter starts anew after a backoff") {
  Case c;
  GradScaler scaler(options(8, 3));
  auto step = [&](bool bad) { c.train(scaler, bad); };
  step(false), step(false);
  CHECK(scaler.get_scale() == 8);
  step(false);
  CHECK(scaler.get_scale() == 16);
  step(false), step(false), step(true);
  CHECK(scaler.get_scale() == 8);
  step(false), step(false);
  CHECK(scaler.get_scale() == 8);
  step(false);
  CHECK(scaler.get_scale() == 16);
}

TEST_CASE("an interval lowered below the tracker still leads to growth") {
  Case c;
  GradScaler scaler(options(8, 10));
  for (int i = 0; i < 5; ++i) c.train(scaler);
  scaler.set_growth_interval(3);
  c.train(scaler);
  CHECK(scaler.get_scale() == 16);
}

TEST_CASE("a finite scaled gradient that is infinite once unscaled skips the step") {
  const Tensor p = ones({1}, requires_grad());
  optim::SGD optimizer({p}, optim::SGDOptions(1.0));
  GradScaler scaler(options(0x1p-20));
  scaler.scale(p.sum()).backward();
  testing::poke(p.grad(), 0, 0x1p120f);
  CHECK(scaler.step(optimizer).found_inf());
  CHECK(p.item() == 1);
}

TEST_CASE("a half loss of one element is scaled in float32 and cannot overflow by it") {
  GradScaler scaler;
  const Tensor scaled = scaler.scale(full({}, 100.0, kFloat16));
  CHECK(scaled.dtype() == kFloat32);
  CHECK(scaled.item() == 6553600);
}

TEST_CASE("the scale never becomes infinite, and respects its bounds") {
  Case c;
  GradScalerOptions o = options(1e38);
  o.growth_factor = 16;
  GradScaler scaler(o);
  scaler.scale(c.a.sum()).backward();
  CHECK(scaler.step(c.optimizer).applied());
  scaler.update();
  CHECK(scaler.get_scale() == static_cast<double>(1e38f));

  GradScalerOptions bounded = options(64);
  bounded.min_scale = 16;
  bounded.max_scale = 128;
  GradScaler other(bounded);
  for (int i = 0; i < 4; ++i) c.train(other);
  CHECK(other.get_scale() == 128);
  for (int i = 0; i < 6; ++i) c.train(other, true);
  CHECK(other.get_scale() == 16);
}

TEST_CASE("a fixed scale stays, and still skips") {
  Case c;
  GradScaler scaler(GradScalerOptions::fixed(128));
  for (int i = 0; i < 5; ++i) c.train(scaler);
  const Tensor a = c.a.detach().clone();
  CHECK(c.train(scaler, true).found_inf());
  CHECK(scaler.get_scale() == 128);
  CHECK(c.a.equal(a));
}

TEST_CASE("a disabled scaler passes everything through") {
  GradScalerOptions o;
  o.enabled = false;
  GradScaler scaler(o);
  Case c, plain;
  const Tensor loss = c.a.sum();
  CHECK(scaler.scale(loss).is_same(loss));
  c.backward(scaler);
  scaler.unscale_(c.optimizer), scaler.unscale_(c.optimizer);
  const auto result = scaler.step(c.optimizer, [&] { return full({}, 3.0); });
  CHECK(result.loss.item() == 3);
  CHECK(result.applied());
  scaler.update(), scaler.update(), scaler.update(-7.0), scaler.update(full({}, 7.0));
  scaler.load_state_dict({{"scale", 7}});
  CHECK(scaler.get_scale() == 1);
  CHECK(scaler.state_dict().empty());
  ((plain.a * plain.a).sum() + (plain.b * plain.b).sum()).backward();
  plain.optimizer.step();
  CHECK(c.a.equal(plain.a));
}

TEST_CASE("calls in a wrong order throw and name the missing call") {
  Case c;
  GradScaler scaler(options(4));
  CHECK_THROWS_WITH_AS(scaler.step(c.optimizer), doctest::Contains("scaler.scale(loss)"), Error);
  CHECK_THROWS_WITH_AS(scaler.unscale_(c.optimizer), doctest::Contains("scaler.scale(loss)"),
                       Error);
  CHECK_THROWS_WITH_AS(scaler.update(), doctest::Contains("scaler.scale(loss)"), Error);
  c.backward(scaler);
  CHECK_THROWS_WITH_AS(scaler.update(), doctest::Contains("scaler.step(optimizer)"), Error);
  scaler.unscale_(c.optimizer);
  CHECK_THROWS_WITH_AS(scaler.unscale_(c.optimizer), doctest::Contains("already called"), Error);
  CHECK_THROWS_WITH_AS(scaler.step(c.optimizer, [] { return Tensor(); }),
                       doctest::Contains("closure"), Error);
  scaler.step(c.optimizer);
  CHECK_THROWS_WITH_AS(scaler.step(c.optimizer), doctest::Contains("update()"), Error);
  CHECK_THROWS_WITH_AS(scaler.unscale_(c.optimizer), doctest::Contains("after step()"), Error);
  scaler.update();
  c.backward(scaler);
  CHECK(scaler.step(c.optimizer).applied());
}

TEST_CASE("options out of range are refused by name") {
  const std::pair<GradScalerOptions, const char*> wrong[] = {
      {{.growth_factor = 1}, "growth_factor"},
      {{.growth_factor = std::nan("")}, "growth_factor"},
      {{.backoff_factor = 0}, "backoff_factor"},
      {{.backoff_factor = 1}, "backoff_factor"},
      {{.growth_interval = 0}, "growth_interval"},
      {{.init_scale = 0}, "scale 0"},
      {{.init_scale = 1e39}, "finite in float32"},
      {{.min_scale = 4, .max_scale = 2}, "min_scale"}};
  for (const auto& [o, name] : wrong)
    CHECK_THROWS_WITH_AS(GradScaler{o}, doctest::Contains(name), Error);
  CHECK_NOTHROW(GradScaler({.growth_factor = 0, .enabled = false}));
}

TEST_CASE("an optimizer without gradients is a no-op that says so") {
  Case c, other;
  GradScaler scaler(options(4));
  c.backward(scaler);
  const auto nothing = scaler.step(other.optimizer);
  CHECK_FALSE(nothing.had_gradients);
  CHECK_FALSE(nothing.applied());
  CHECK(scaler.step(c.optimizer).applied());
  scaler.update();
  CHECK(scaler.get_scale() == 8);
  CHECK(other.a.equal(ones({3})));
  scaler.step(other.optimizer);
  scaler.update();
  CHECK(scaler.get_scale() == 8);  // nothing was learnt about the scale
}

TEST_CASE("with two optimizers only the overflowing one skips, and the scale backs off once") {
  Case one, two;
  GradScaler scaler(options(128, 100));
  one.optimizer.zero_grad(), two.optimizer.zero_grad();
  const Tensor shared = (one.a * two.a).sum();
  scaler.scale(shared + one.a.sum()).backward({}, true);
  scaler.scale(shared + two.a.sum()).backward();
  testing::poke(one.a.grad(), 1, kInf);
  scaler.unscale_(one.optimizer);
  CHECK_FALSE(scaler.step(one.optimizer).applied());
  CHECK(scaler.step(two.optimizer).applied());
  scaler.update();
  CHECK(scaler.get_scale() == 64);
  CHECK(one.a.equal(ones({3})));
  CHECK_FALSE(two.a.equal(ones({3})));
}

TEST_CASE(
    "float16 gradients are refused with the cure, or allowed on request; bfloat16 ones work") {
  for (const Dtype d : {kFloat16, kBFloat16}) {
    const Tensor p = ones({2}, TensorOptions(d).requires_grad(true));
    optim::SGD optimizer({p}, optim::SGDOptions(0.5));
    GradScaler strict(options(4));
    strict.scale(p.sum()).backward();
    if (d == kFloat16) {
      CHECK_THROWS_WITH_AS(strict.step(optimizer), doctest::Contains("allow_fp16_grads"), Error);
      GradScalerOptions o = options(4);
      o.allow_fp16_grads = true;
      GradScaler lenient(o);
      p.mutable_grad() = Tensor();
      lenient.scale(p.sum()).backward();
      CHECK(lenient.step(optimizer).applied());
    } else {
      CHECK(strict.step(optimizer).applied());
    }
    CHECK(p.equal(full({2}, 0.5, d)));
  }
}

TEST_CASE(
    "a saved state continues where it stopped, also mid-interval and before the first scale") {
  Case c;
  GradScaler scaler(options(8, 5));
  for (int i = 0; i < 3; ++i) c.train(scaler);
  const auto saved = scaler.state_dict();
  CHECK(saved.at("scale") == 8);
  CHECK(saved.at("_growth_tracker") == 3);
  GradScaler lazy(options(2, 7)), live(options(2, 7));
  Case d;
  d.train(live);
  for (GradScaler* resumed : {&lazy, &live}) {
    resumed->load_state_dict(saved);
    CHECK(resumed->state_dict() == saved);
    for (int i = 0; i < 2; ++i) d.train(*resumed);
    CHECK(resumed->get_scale() == 16);
  }
  CHECK_THROWS_WITH_AS(lazy.load_state_dict({}), doctest::Contains("disabled scaler"), Error);
  auto broken = saved;
  broken.erase("growth_factor");
  CHECK_THROWS_WITH_AS(lazy.load_state_dict(broken), doctest::Contains("growth_factor"), Error);
  broken = saved;
  broken["scale"] = -1;
  CHECK_THROWS_AS(lazy.load_state_dict(broken), Error);
  CHECK(lazy.get_scale() == 16);
}

TEST_CASE("update with a value sets the scale and leaves the tracker") {
  Case c;
  GradScaler scaler(options(8, 5));
  scaler.update(32.0);
  CHECK(scaler.get_scale() == 32);
  c.train(scaler);
  scaler.update(full({1}, 4.0));
  CHECK(scaler.get_scale() == 4);
  CHECK(scaler.get_growth_tracker() == 1);
  CHECK_THROWS_AS(scaler.update(ones({2})), Error);
  CHECK_THROWS_AS(scaler.update(-1.0), Error);
}

TEST_CASE(
    "a gradient of the user's own is divided by the scale of now, whatever was scaled before") {
  const Tensor w = zeros({2}, requires_grad());
  optim::SGD optimizer({w}, optim::SGDOptions(1));
  GradScaler scaler(options(64, 100));
  (void)scaler.scale(full({}, kInf));
  scaler.update(32);
  w.mutable_grad() = full({2}, 32.0);
  CHECK(scaler.step(optimizer).applied());
  CHECK(w.equal(full({2}, -1.0)));
}

TEST_CASE("a hook that writes what a scaled loss's backward begins with changes the gradients") {
  const Tensor w = ones({2}, requires_grad());
  GradScaler scaler(options(4));
  const Tensor scaled = scaler.scale(w.sum());
  scaled.register_hook([](const Tensor& g) { g.mul_(3); });
  scaled.backward();
  CHECK(w.grad().equal(full({2}, 12.0)));
}

TEST_CASE("a whole step never waits for the device and checks all gradients in one launch") {
  manual_seed(1);
  nn::Sequential model(nn::Linear(8, 16), nn::ReLU(), nn::Linear(16, 4));
  optim::Adam optimizer(model->parameters(), optim::AdamOptions(1e-3));
  GradScaler scaler;
  const Tensor x = randn({5, 8}), y = zeros({5}, kInt64);
  auto step = [&] {
    optimizer.zero_grad();
    Tensor loss;
    {
      const amp::autocast region(kCPU, kFloat16);
      loss = cross_entropy(model->forward(x), y);
    }
    scaler.scale(loss).backward();
    scaler.step(optimizer);
    scaler.update();
  };
  step(), step();
  testing::TracingBackend trace;
  step();
  CHECK(trace.count("read") == 0);
  CHECK(trace.count("unscale") == 1);
  CHECK(trace.count("adam") == 1);
  CHECK(trace.count("transition") == 1);
  const auto first = trace.allocations;
  trace.clear();
  step();
  CHECK(trace.allocations == first);  // the same sizes in the same order: safe to capture
}

TEST_CASE("gradients that are infinite after unscale_ are the user's own, as in torch") {
  Case c;
  GradScaler scaler(options(4));
  c.backward(scaler);
  scaler.unscale_(c.optimizer);
  testing::poke(c.a.grad(), 0, kInf);
  CHECK(scaler.step(c.optimizer).applied());
  CHECK(c.a.to_vector()[0] == -kInf);
}

TEST_CASE("weights do not depend on a power-of-two scale where nothing under- or overflows") {
  auto train = [](double scale) {
    manual_seed(7);
    nn::Linear model(6, 3);
    optim::SGD optimizer(model->parameters(), optim::SGDOptions(0.05).momentum(0.9));
    GradScaler scaler(options(scale, 1000));
    const Tensor x = randn({16, 6}), y = randn({16, 3});
    for (int i = 0; i < 20; ++i) {
      optimizer.zero_grad();
      scaler.scale(mse_loss(model->forward(x), y)).backward();
      scaler.step(optimizer);
      scaler.update();
    }
    return model->weight.detach();
  };
  const Tensor reference = train(1);
  for (const double scale : {0x1p4, 0x1p10, 0x1p16, 0x1p20}) CHECK(train(scale).equal(reference));
}

TEST_CASE("an optimizer made where another one was does not inherit what was found there") {
  const Tensor a = ones({2}, requires_grad()), b = ones({3}, requires_grad());
  std::optional<optim::SGD> optimizer;
  const auto make = [&](const Tensor& p) {
    optimizer.emplace(std::vector<Tensor>{p}, optim::SGDOptions(1.0));
    return &*optimizer;
  };
  for (const bool steps : {false, true}) {
    CAPTURE(steps);
    GradScaler scaler({.init_scale = 8});
    const optim::Optimizer* place = make(a);
    const uint64_t id = optimizer->id();
    scaler.scale(a.sum() + b.sum()).backward();
    a.grad().fill_(kInf);
    if (steps)
      CHECK(scaler.step(*optimizer).found_inf());
    else
      scaler.unscale_(*optimizer);
    REQUIRE(make(b) == place);
    CHECK(optimizer->id() > id);
    // Neither unscaled nor stepped yet, and its gradients are finite.
    CHECK(scaler.step(*optimizer).applied());
    CHECK(b.equal(zeros({3})));
    // What the former one found still counts, and is said of the former one.
    scaler.update();
    CHECK(scaler.get_scale() == 4);
    const auto first = scaler.stats().nonfinite;
    REQUIRE(first);
    CHECK(first->optimizer == 0);
    CHECK(first->shape == Shape{2});
    optimizer->zero_grad();
    a.mutable_grad() = Tensor();
    b.detach().fill_(1);
  }
}
