// The scale grows by headroom to where gradients of the next step still fit, and no further.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>

#include "halftape/tests/support/message.h"
#include "halftape/tests/support/nonfinite.h"

using namespace halftape;
using testing::kInf;

namespace {

/// One weight whose gradient is chosen.
struct HeadroomTraining {
  explicit HeadroomTraining(amp::GradScalerOptions options, double room = 2, Dtype dtype = kFloat32)
      : w(zeros({3}, dtype).requires_grad_()), scaler(options), growth(scaler, room) {}
  Tensor w;
  optim::SGD optimizer{{w}, optim::SGDOptions(1)};
  amp::GradScaler scaler;
  amp::HeadroomGrowth growth;
  /// The scale after a step with that gradient.
  double step(double gradient) {
    optimizer.zero_grad();
    scaler.scale((w * gradient).sum()).backward();
    scaler.step(optimizer);
    growth.update(optimizer);
    return scaler.get_scale();
  }
};

}  // namespace

TEST_CASE("the scale doubles while twice the gradient, and room, fit into float16") {
  for (const double room : {1.0, 2.0, 8.0}) {
    HeadroomTraining t({.init_scale = 1, .growth_interval = 1 << 20}, room);
    double scale = 1;
    for (int i = 0; i < 40; ++i) scale = t.step(i % 2 ? 0.003 : -0.001);
    // The last growth was at a step of 0.001 or of 0.003: the smaller gradient decides last.
    CHECK(scale == std::exp2(std::floor(std::log2(65504 / (2 * room * 0.001))) + 1));
    CHECK(t.scaler.stats().skips == 0);
  }
}

TEST_CASE("an overflow backs off, gradients of 0 and bounds hold the scale") {
  HeadroomTraining t({.init_scale = 1024, .growth_interval = 1 << 20, .max_scale = 4096});
  CHECK(t.step(3e38) == 512);
  CHECK(t.step(3e38) == 256);
  CHECK(t.scaler.stats().skips == 2);
  CHECK(t.step(0) == 256);
  CHECK(t.step(1000) == 256);
  for (const double expected : {512, 1024, 2048, 4096, 4096}) CHECK(t.step(1e-3) == expected);
  CHECK(t.w.detach().isfinite().all().item<bool>());
}

TEST_CASE("a step without gradients says nothing about the headroom") {
  HeadroomTraining t({.init_scale = 1024});
  t.scaler.scale((t.w * 1e-3).sum());
  t.scaler.step(t.optimizer);
  t.growth.update(t.optimizer);
  CHECK(t.scaler.get_scale() == 1024);
  CHECK(t.scaler.stats().steps == 0);
}

TEST_CASE("a disabled scaler, gradients in float16 and senseless rooms") {
  HeadroomTraining off({.enabled = false});
  CHECK(off.step(1) == 1);
  HeadroomTraining narrow(
      {.init_scale = 1024, .growth_interval = 1 << 20, .allow_fp16_grads = true}, 2, kFloat16);
  CHECK(narrow.step(1) == 2048);  // 4 · 1024 fits
  for (int i = 0; i < 10; ++i) narrow.step(1);
  CHECK(narrow.scaler.get_scale() == 16384);  // 4 · 16384 does not
  for (const double room : {0.5, -1.0, kInf, std::nan("")})
    CHECK(testing::has(testing::message([&] { amp::HeadroomGrowth(off.scaler, room); }),
                       "must be at least 1"));
}

TEST_CASE("float16 gradients are judged at the scale that the interval has made of theirs") {
  HeadroomTraining t({.init_scale = 1024, .growth_interval = 1, .allow_fp16_grads = true}, 1,
                     kFloat16);
  CHECK(t.step(20) == 2048);  // by the interval alone: 2 · 20 · 2048 does not fit
}

TEST_CASE("float16 gradients that unscale_() has divided are not taken for scaled ones") {
  HeadroomTraining t({.init_scale = 1024, .growth_interval = 1 << 20, .allow_fp16_grads = true}, 2,
                     kFloat16);
  for (int i = 0; i < 40; ++i) {
    t.optimizer.zero_grad();
    t.scaler.scale(t.w.to(kFloat32).sum() * 1e-3).backward();
    t.scaler.unscale_(t.optimizer);
    t.scaler.step(t.optimizer);
    t.growth.update(t.optimizer);
  }
  CHECK(t.scaler.stats().skips == 0);
  // 0.001 is 1049·2^-20 in float16: at a scale of 2^23, 4 · 1049 · 2^3 = 33568 fits, and twice as
  // much does not.
  CHECK(t.scaler.get_scale() == 0x1p24);
}

TEST_CASE("a step that a bad loss has skipped does not let the scale grow") {
  HeadroomTraining t({.init_scale = 1024, .growth_interval = 1 << 20});
  t.optimizer.zero_grad();
  t.scaler.scale((t.w * 1e-3).sum() + kInf).backward();  // whose gradients are finite
  t.scaler.step(t.optimizer);
  t.growth.update(t.optimizer);
  CHECK(t.scaler.get_scale() == 1024);
}

TEST_CASE("a bad loss with float16 gradients does not let the scale grow") {
  HeadroomTraining t({.init_scale = 1024, .growth_interval = 1 << 20, .allow_fp16_grads = true}, 2,
                     kFloat16);
  t.optimizer.zero_grad();
  t.scaler.scale((t.w * 1).sum().to(kFloat32) + kInf).backward();
  t.scaler.step(t.optimizer);
  t.growth.update(t.optimizer);
  CHECK(t.scaler.stats().bad_losses == 1);
  CHECK(t.scaler.get_scale() == 1024);
}

TEST_CASE("an overflow that hysteresis lets pass, or a bound, is no room to grow") {
  for (const auto& options :
       {amp::GradScalerOptions{.init_scale = 65536, .growth_interval = 1000, .hysteresis = 2},
        amp::GradScalerOptions{.init_scale = 65536, .growth_interval = 1000, .min_scale = 65536}}) {
    const Tensor small = zeros({3}).requires_grad_(), large = zeros({3}).requires_grad_();
    optim::SGD first({small}, optim::SGDOptions(1)), second({large}, optim::SGDOptions(0));
    amp::GradScaler scaler(options);
    amp::HeadroomGrowth growth(scaler);
    scaler.scale((small * 1e-9).sum() + (large * 3e35).sum()).backward();
    scaler.step(first), scaler.step(second);
    growth.update(first);
    CHECK(scaler.get_scale() == 65536);
  }
}

TEST_CASE("an overflow of another optimizer backs off, and stays backed off") {
  const Tensor small = zeros({3}).requires_grad_(), large = zeros({3}).requires_grad_();
  optim::SGD first({small}, optim::SGDOptions(1)), second({large}, optim::SGDOptions(0));
  amp::GradScaler scaler({.init_scale = 65536, .growth_interval = 1000});
  amp::HeadroomGrowth growth(scaler);
  for (int i = 0; i < 12; ++i) {
    const double before = scaler.scale(ones({})).item<double>();
    first.zero_grad(), second.zero_grad();
    scaler.scale((small * 1e-9).sum() + (large * 3e35).sum()).backward();
    scaler.step(first), scaler.step(second);
    growth.update(first);
    CHECK(scaler.get_scale() == before * (before > 1024 ? 0.5 : 2));  // 3e35 · 1024 fits
  }
}

TEST_CASE("a fixed scale is refused") {
  amp::GradScaler scaler(amp::GradScalerOptions::fixed(8));
  CHECK_THROWS_WITH_AS(amp::HeadroomGrowth{scaler}, doctest::Contains("never grows"), Error);
}
