// Tests of GradScaler in ../amp.h; `run` builds and starts them.
#include <doctest/doctest.h>

#include <limits>
#include <stdexcept>

#include "../amp.h"

namespace {

using amp::autocast;
using amp::GradScaler;
using amp::GradScalerOptions;
using torch::kBFloat16;
using torch::kCPU;
using torch::kHalf;
using torch::Tensor;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

GradScaler plain(double scale) { return GradScaler(kCPU, GradScalerOptions().init_scale(scale)); }

/// One weight of 8, whose loss has the gradient 1, and SGD with a learning rate of 1.
struct Problem {
  Tensor w = torch::full({1}, 8., torch::requires_grad());
  torch::optim::SGD optimizer{{w}, torch::optim::SGDOptions(1)};
  void backward(GradScaler& scaler) {
    w.mutable_grad() = Tensor();
    scaler.scale(w.sum()).backward();
  }
  void backward(GradScaler& scaler, float grad) {
    backward(scaler);
    w.mutable_grad().fill_(grad);
  }
  void iterate(GradScaler& scaler, float grad) {
    backward(scaler, grad), scaler.step(optimizer), scaler.update();
  }
  void iterate(GradScaler& scaler) { backward(scaler), scaler.step(optimizer), scaler.update(); }
  float value() const { return w.item<float>(); }
};

}  // namespace

TEST_CASE("GradScaler: without CUDA one for CUDA is disabled") {
  if (!torch::cuda::is_available()) CHECK(!GradScaler().is_enabled());
}

TEST_CASE("GradScaler: a step, a skip, a step") {
  GradScaler scaler(kCPU, GradScalerOptions().init_scale(4).growth_interval(2));
  Problem p;
  p.backward(scaler);
  CHECK(p.w.grad().item<float>() == 4);
  const auto good = scaler.step(p.optimizer);
  CHECK((good.applied && good.had_gradients && !good.found_inf && !good.bad_loss));
  CHECK(p.value() == 7);
  CHECK(p.w.grad().item<float>() == 1);
  scaler.update();
  for (const float bad : {kInf, -kInf, kNaN}) {
    const double before = scaler.get_scale();
    p.backward(scaler, bad);
    const auto skipped = scaler.step(p.optimizer);
    CHECK((!skipped.applied && skipped.found_inf && !skipped.bad_loss));
    scaler.update();
    CHECK(p.value() == 7);
    CHECK(scaler.get_scale() == before / 2);
    CHECK(scaler.get_growth_tracker() == 0);
  }
  CHECK(scaler.stats().steps == 4);
  CHECK(scaler.stats().skips == 3);
  CHECK(scaler.stats().skips_in_row == 3);
  for (int i = 0; i < 2; ++i) p.iterate(scaler);
  CHECK(scaler.get_scale() == 1);
  CHECK(scaler.stats().skips_in_row == 0);
}

TEST_CASE("GradScaler: of all orders of calls, those that step use gradients divided once") {
  int stepped = 0;
  for (int code = 0; code < 4096; ++code) {  // six calls, each one of four
    GradScaler scaler(kCPU, GradScalerOptions().init_scale(4).growth_interval(1));
    Problem p;
    float expected = 8;
    bool fresh = false, unscaled = false, done = false, late = false;  // since update()
    for (int i = 0, rest = code; i < 6; ++i, rest /= 4) {
      const bool right[] = {true, fresh && !unscaled && !done, fresh && !done && !late,
                            unscaled || done};
      bool threw = false;
      try {
        if (rest % 4 == 0) p.backward(scaler), late |= unscaled, fresh = true;
        if (rest % 4 == 1) scaler.unscale_(p.optimizer), unscaled = true;
        if (rest % 4 == 2) scaler.step(p.optimizer), done = true, --expected, ++stepped;
        if (rest % 4 == 3) scaler.update(), fresh = unscaled = done = late = false;
      } catch (const c10::Error&) {
        threw = true;
      }
      REQUIRE(threw == !right[rest % 4]);
      REQUIRE(p.value() == expected);
    }
  }
  CHECK(stepped > 1000);
}

TEST_CASE("GradScaler: errors name the missing call") {
  GradScaler scaler = plain(4);
  Problem p;
  const auto throws = [](auto&& call, const char* text) {
    CHECK_THROWS_WITH_AS(call(), doctest::Contains(text), c10::Error);
  };
  const auto step = [&] { scaler.step(p.optimizer); };
  const auto unscale = [&] { scaler.unscale_(p.optimizer); };
  const auto update = [&] { scaler.update(); };
  throws(step, "GradScaler::step: no scaled loss went backward");
  throws(unscale, "GradScaler::unscale_: no scaled loss went backward");
  throws(update, "nothing was checked");
  (void)scaler.scale(p.w.sum());  // but no backward()
  throws(step, "no scaled loss went backward");
  p.backward(scaler);
  throws(update, "nothing was checked");
  unscale();
  throws(unscale, "already called");
  step();
  throws(unscale, "step() was already called");
  throws(step, "step() was already called");
  update();
  throws(update, "nothing was checked");
  throws(step, "no scaled loss went backward");  // these gradients were used
  throws([&] { scaler.step(p.optimizer, [&] { return p.w.sum(); }); }, "closure");
  throws([&] { (void)scaler.scale(Tensor()); }, "floating-point");
  throws([&] { (void)scaler.scale(torch::ones({2}, torch::kLong)); }, "floating-point");
  p.backward(scaler);
  const Tensor late = scaler.scale((p.w * p.w).sum());
  step(), update();
  CHECK_THROWS_AS(late.backward(), c10::Error);  // update() has changed its scale, as in torch
}

TEST_CASE("GradScaler: a gradient that arrives after unscale_ is refused") {
  GradScaler scaler = plain(4);
  Problem p, other;
  p.backward(scaler);
  scaler.unscale_(p.optimizer);
  other.backward(scaler);  // another optimizer's may come
  (void)torch::autograd::grad({(p.w * p.w).sum()}, {p.w});
  torch::nn::utils::clip_grad_norm_(p.optimizer.param_groups()[0].params(), 0.5);
  CHECK(scaler.step(p.optimizer).applied);
  CHECK(p.value() == doctest::Approx(7.5));
  scaler.step(other.optimizer), scaler.update();

  p.backward(scaler);
  scaler.unscale_(p.optimizer);
  scaler.scale(p.w.sum()).backward();
  CHECK_THROWS_WITH_AS(scaler.step(p.optimizer), doctest::Contains("after unscale_()"), c10::Error);
  scaler.update();
  p.backward(scaler);
  CHECK(scaler.step(p.optimizer).applied);
}

TEST_CASE("GradScaler: a bad loss is not an overflow of the scaled one") {
  for (const float bad : {kInf, -kInf, kNaN}) {
    GradScaler scaler(kCPU, GradScalerOptions().init_scale(4).growth_interval(2));
    Problem p;
    p.iterate(scaler);
    p.w.mutable_grad() = Tensor();
    scaler.scale(p.w.sum() + bad).backward();  // its gradient is finite
    const auto result = scaler.step(p.optimizer);
    CHECK((result.bad_loss && result.found_inf && !result.applied));
    scaler.update();
    CHECK(p.value() == 7);
    CHECK(scaler.get_scale() == 4);
    CHECK(scaler.get_growth_tracker() == 1);
    CHECK(scaler.stats().bad_losses == 1);
    p.backward(scaler);
    CHECK(scaler.step(p.optimizer).applied);
  }
  GradScaler scaler = plain(std::ldexp(1., 120));
  Problem p;
  scaler.scale(p.w.sum() * 1e30).backward();  // finite, but not when scaled
  const auto result = scaler.step(p.optimizer);
  CHECK((!result.bad_loss && result.found_inf));
  scaler.update();
  CHECK(scaler.get_scale() == std::ldexp(1., 119));
}

TEST_CASE("GradScaler: losses of any shape and dtype") {
  GradScaler scaler = plain(4);
  for (const auto dtype : {torch::kFloat, torch::kDouble, kHalf, kBFloat16})
    for (const bool is_vector : {false, true}) {
      Problem p;
      const Tensor loss = is_vector ? p.w.expand({3}).to(dtype) : p.w.to(dtype)[0];
      const Tensor scaled = scaler.scale(loss);
      CHECK((scaled.sizes() == loss.sizes()));
      scaled.backward(torch::ones_like(scaled));
      CHECK(p.w.grad().item<float>() == (is_vector ? 12 : 4));
      CHECK(scaler.step(p.optimizer).applied);
      scaler.update();
    }
  Problem p;
  scaler.scale(torch::cat({p.w, p.w + kNaN})).backward(torch::ones({2}));
  CHECK(scaler.step(p.optimizer).bad_loss);
}

TEST_CASE("GradScaler: parameters without a gradient") {
  GradScaler scaler(kCPU, GradScalerOptions().init_scale(4).growth_interval(1));
  Problem p, untouched;
  const Tensor frozen = torch::ones({2}), unused = torch::ones({2}, torch::requires_grad());
  torch::optim::SGD both({frozen, unused, p.w}, 1.);
  p.backward(scaler);
  const auto none = scaler.step(untouched.optimizer);
  CHECK((!none.had_gradients && !none.applied && !none.found_inf));
  scaler.update();  // nothing was checked, so the scale stays
  CHECK(scaler.get_scale() == 4);
  CHECK(scaler.stats().steps == 0);
  p.backward(scaler);
  CHECK(scaler.step(both).applied);
  scaler.step(untouched.optimizer);
  scaler.update();
  CHECK(scaler.get_scale() == 8);
  CHECK(p.value() == 7);
  CHECK(unused.sum().item<float>() == 2);
}

TEST_CASE("GradScaler: gradients of other dtypes, mixed in one optimizer") {
  for (const auto dtype : {torch::kDouble, kBFloat16, kHalf}) {
    const Tensor w = torch::full({3, 4}, 8., torch::dtype(dtype).requires_grad(true));
    Problem p;
    torch::optim::SGD optimizer({w.t().detach().requires_grad_(), w, p.w}, 1.);
    GradScaler strict = plain(4);
    GradScaler scaler(kCPU, GradScalerOptions().init_scale(4).allow_fp16_grads(true));
    const auto backward = [&](GradScaler& s) {
      w.mutable_grad() = Tensor();
      p.w.mutable_grad() = Tensor();
      s.scale((w.sum() + p.w.sum()).to(torch::kFloat)).backward();
    };
    if (dtype == kHalf) {
      backward(strict);
      CHECK_THROWS_WITH_AS(strict.step(optimizer), doctest::Contains("float16"), c10::Error);
      CHECK(p.w.grad().item<float>() == 4);  // nothing was divided
    }
    backward(scaler);
    CHECK(scaler.step(optimizer).applied);
    scaler.update();
    CHECK(w.eq(7).all().item<bool>());
    CHECK(p.value() == 7);
    backward(scaler);
    w.mutable_grad()[1][2] = kInf;
    CHECK(scaler.step(optimizer).found_inf);
    CHECK(w.eq(7).all().item<bool>());
  }
}

TEST_CASE("GradScaler: sparse gradients") {
  torch::nn::Embedding table(torch::nn::EmbeddingOptions(5, 2).sparse(true));
  torch::optim::SGD optimizer(table->parameters(), 1.);
  const Tensor before = table->weight.detach().clone();
  GradScaler scaler = plain(4);
  const auto backward = [&] {
    table->weight.mutable_grad() = Tensor();
    scaler.scale(table->forward(torch::tensor({1, 3, 1})).sum()).backward();
    REQUIRE(table->weight.grad().is_sparse());
  };
  backward();
  CHECK(scaler.step(optimizer).applied);
  scaler.update();
  const Tensor moved = (before - table->weight.detach()).sum(1);
  CHECK(torch::allclose(moved, torch::tensor({0., 4., 0., 2., 0.}, torch::kFloat)));
  backward();
  table->weight.grad()._values()[1][0] = kNaN;
  CHECK(scaler.step(optimizer).found_inf);
  scaler.update();
  CHECK(scaler.get_scale() == 2);
}

TEST_CASE("GradScaler: several optimizers and losses share a scale, and skip alone") {
  GradScaler scaler = plain(4);
  Problem a, b;
  scaler.scale((a.w * b.w).sum()).backward();
  scaler.scale(b.w.sum()).backward();
  a.w.mutable_grad().fill_(kInf);
  scaler.unscale_(b.optimizer);
  CHECK(scaler.step(a.optimizer).found_inf);
  CHECK(scaler.step(b.optimizer).applied);
  scaler.update();
  CHECK(a.value() == 8);
  CHECK(b.value() == -1);
  CHECK(scaler.get_scale() == 2);
  b.backward(scaler, kInf);
  scaler.unscale_(b.optimizer);  // found, and never stepped: counts
  scaler.update();
  CHECK(scaler.get_scale() == 1);
}

TEST_CASE("GradScaler: the scale stays useful at the ends of float32") {
  GradScaler least = plain(FLT_MIN);
  Problem p;
  p.iterate(least, kInf);
  CHECK(least.get_scale() == FLT_MIN);
  p.backward(least, 1e10F);  // finite, but not when divided by 2^-126
  CHECK(least.step(p.optimizer).found_inf);
  CHECK(p.value() == 8);
  least.update();

  GradScaler most(kCPU, GradScalerOptions().init_scale(1e38).growth_factor(16).growth_interval(1));
  p.iterate(most);
  CHECK(most.get_scale() == static_cast<float>(1e38));  // as in torch: not taken at all
  CHECK(p.value() == doctest::Approx(7));

  GradScaler bounded(
      kCPU, GradScalerOptions().init_scale(3).growth_interval(1).min_scale(2).max_scale(5));
  p.iterate(bounded);
  CHECK(bounded.get_scale() == 5);
  for (int i = 0; i < 2; ++i) p.iterate(bounded, kNaN);
  CHECK(bounded.get_scale() == 2);
}

TEST_CASE("GradScaler: options and setters refuse rubbish") {
  const auto refused = [](const GradScalerOptions& o) {
    CHECK_THROWS_AS(GradScaler(kCPU, o), c10::Error);
  };
  for (const double scale : {0., -1., double(kInf), double(kNaN), 1e-40, 1e39, 1e300})
    refused(GradScalerOptions().init_scale(scale));
  for (const double growth : {1., 0.5, 0., -2., double(kInf), double(kNaN)})
    refused(GradScalerOptions().growth_factor(growth));
  for (const double backoff : {1., 2., 0., -0.5, double(kNaN)})
    refused(GradScalerOptions().backoff_factor(backoff));
  for (const int64_t interval : {int64_t{0}, int64_t{-1}, int64_t{1} << 31})
    refused(GradScalerOptions().growth_interval(interval));
  refused(GradScalerOptions().min_scale(65537));
  refused(GradScalerOptions().max_scale(65535));
  refused(GradScalerOptions().min_scale(0));
  refused(GradScalerOptions().max_scale(kInf));
  CHECK(GradScaler(kCPU, GradScalerOptions().enabled(false).growth_factor(0)).get_scale() == 1);
  GradScaler scaler(kCPU);
  CHECK_THROWS_AS(scaler.set_growth_factor(1), c10::Error);
  CHECK_THROWS_AS(scaler.set_backoff_factor(1), c10::Error);
  CHECK_THROWS_AS(scaler.set_growth_interval(0), c10::Error);
  for (const double scale : {0., double(kInf), double(kNaN), 1e-40})
    CHECK_THROWS_AS(scaler.update(scale), c10::Error);
  CHECK(scaler.get_scale() == 65536);
  CHECK(scaler.get_growth_factor() == 2);
  CHECK(scaler.get_backoff_factor() == 0.5);
  CHECK(scaler.get_growth_interval() == 2000);
}

TEST_CASE("GradScaler: a fixed scale, a new one, and a lowered interval") {
  GradScaler fixed(kCPU, GradScalerOptions().growth_factor(1).backoff_factor(1).growth_interval(1));
  Problem p;
  p.iterate(fixed);
  p.iterate(fixed, kInf);
  CHECK(fixed.get_scale() == 65536);

  GradScaler scaler = plain(4);
  scaler.update(16.);  // before the first loss
  for (int i = 0; i < 5; ++i) p.iterate(scaler);
  scaler.update(32.);
  CHECK(scaler.get_growth_tracker() == 5);
  scaler.set_growth_interval(3);  // in torch this scale would never grow again
  p.iterate(scaler);
  CHECK(scaler.get_scale() == 64);
}

TEST_CASE("GradScaler: the state is torch's, and rubbish changes nothing") {
  GradScaler a(kCPU, GradScalerOptions().init_scale(4).growth_interval(3));
  Problem p;
  p.iterate(a);
  const std::map<std::string, double> state{{"_growth_tracker", 1},
                                            {"backoff_factor", 0.5},
                                            {"growth_factor", 2},
                                            {"growth_interval", 3},
                                            {"scale", 4}};
  CHECK((a.state_dict() == state));
  GradScaler lazy(kCPU), running(kCPU);
  p.backward(running);
  for (GradScaler* b : {&lazy, &running}) {
    b->load_state_dict(state);
    CHECK((b->state_dict() == state));
    CHECK_THROWS_AS(b->step(p.optimizer), c10::Error);  // gradients of another scale
    for (const auto& [key, value] : state) {
      auto lacks = state;
      lacks.erase(key);
      CHECK_THROWS_WITH_AS(b->load_state_dict(lacks), doctest::Contains(key.c_str()), c10::Error);
      for (const double v : {double(kNaN), double(kInf), -1., 1e300, 0.3}) {
        auto wrong = state;
        if (v == 0.3 && (key == "scale" || key == "backoff_factor")) continue;
        wrong[key] = v;
        CHECK_THROWS_AS(b->load_state_dict(wrong), c10::Error);
      }
    }
    CHECK_THROWS_WITH_AS(b->load_state_dict({}), doctest::Contains("disabled"), c10::Error);
    CHECK((b->state_dict() == state));
    for (int i = 0; i < 2; ++i) p.iterate(*b);
    CHECK(b->get_scale() == 8);
  }
}

TEST_CASE("GradScaler: disabled, every call passes through") {
  GradScaler scaler(kCPU, GradScalerOptions().enabled(false));
  Problem p;
  CHECK(scaler.scale(p.w).is_same(p.w));
  p.backward(scaler, kInf);
  scaler.unscale_(p.optimizer), scaler.unscale_(p.optimizer);
  p.w.mutable_grad().fill_(1);
  CHECK(scaler.step(p.optimizer).applied);
  CHECK(scaler.step(p.optimizer, [&] { return p.w.sum(); }).loss.item<float>() == 7);
  scaler.update(), scaler.update(kNaN);
  CHECK(p.value() == 6);
  CHECK(scaler.get_scale() == 1);
  CHECK(scaler.get_growth_tracker() == 0);
  CHECK(scaler.state_dict().empty());
  scaler.load_state_dict({{"scale", kNaN}});
  CHECK(scaler.stats().steps == 0);
}

TEST_CASE("GradScaler: an optimizer that throws, then the next iteration") {
  struct Throws : torch::optim::SGD {
    using SGD::SGD;
    Tensor step(LossClosure) override { throw std::runtime_error("out of memory"); }
  };
  GradScaler scaler = plain(4);
  Problem p;
  Throws optimizer({p.w}, torch::optim::SGDOptions(1));
  p.backward(scaler);
  CHECK_THROWS_AS(scaler.step(optimizer), std::runtime_error);
  scaler.update();
  p.backward(scaler);
  CHECK(scaler.step(p.optimizer).applied);
  CHECK(p.value() == 7);
}

TEST_CASE("GradScaler: from thread to thread, and one in each") {
  GradScaler scaler = plain(4);
  Problem p;
  p.backward(scaler);
  std::thread([&] { scaler.unscale_(p.optimizer); }).join();
  std::thread([&] { scaler.step(p.optimizer), scaler.update(); }).join();
  CHECK(p.value() == 7);

  std::vector<std::thread> threads;
  std::vector<float> values(4);
  for (float& value : values)
    threads.emplace_back([&value] {
      GradScaler mine(kCPU, GradScalerOptions().init_scale(4).growth_interval(1));
      Problem q;
      for (int i = 0; i < 5; ++i) {
        const autocast region(kCPU);
        q.iterate(mine);
      }
      value = q.value();
    });
  for (std::thread& t : threads) t.join();
  CHECK((values == std::vector<float>(4, 3)));
}
