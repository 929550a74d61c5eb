// Two networks that train against each other, with one scaler: the generator's loss leaves
// gradients in the discriminator, where nobody wants them.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <optional>

using namespace halftape;
using amp::GradScaler;

namespace {

/// Numbers that a normal distribution around 2 could have made, against those that a line makes of
/// noise. Adam on both sides.
struct Gan {
  nn::Sequential make(int64_t in, int64_t hidden) {
    nn::Linear first{in, hidden}, last{hidden, 1};
    return nn::Sequential(first, nn::Tanh(), last);
  }
  Gan() {
    manual_seed(11);
    g = make(2, 8), d = make(1, 16);
    optimizer_g.emplace(g->parameters(), optim::AdamOptions(0.01));
    optimizer_d.emplace(d->parameters(), optim::AdamOptions(0.02));
  }
  static Tensor wanted(const Tensor& score, double what) {
    return binary_cross_entropy_with_logits(score, full_like(score, what));
  }
  /// One step of each, as in torch's tutorial. `scaler`: none for plain float32.
  void step(GradScaler* scaler, bool forget_d = true) {
    const auto backward = [&](const Tensor& loss) {
      (scaler ? scaler->scale(loss) : loss).backward();
    };
    const auto step = [&](optim::Optimizer& optimizer) {
      if (!scaler)
        optimizer.step();
      else if (!scaler->step(optimizer).applied())
        FAIL_CHECK("a step was skipped");
    };
    const Tensor real = randn({16, 1}) * 0.5 + 2, noise = randn({16, 2});
    const Tensor fake = g->forward(noise);
    if (forget_d) optimizer_d->zero_grad();
    backward(wanted(d->forward(real), 1));
    backward(wanted(d->forward(fake.detach()), 0));
    step(*optimizer_d);
    optimizer_g->zero_grad();
    backward(wanted(d->forward(fake), 1));  // through d, whose gradients are unscaled by now
    step(*optimizer_g);
    if (scaler) scaler->update();
  }
  std::vector<Tensor> weights() const {
    std::vector<Tensor> all;
    for (const auto& net : {g, d})
      for (const Tensor& p : net->parameters()) all.push_back(p.detach().clone());
    return all;
  }
  nn::Sequential g{nullptr}, d{nullptr};
  std::optional<optim::Adam> optimizer_g, optimizer_d;
};

}  // namespace

TEST_CASE("a GAN with one scaler makes the steps that it makes without one") {
  // Powers of two leave no trace in float32, and the scale grows on the way.
  Gan plain, scaled;
  GradScaler scaler({.init_scale = 256, .growth_interval = 10});
  const std::vector<Tensor> before = plain.weights();
  manual_seed(1);
  for (int i = 0; i < 50; ++i) plain.step(nullptr);
  manual_seed(1);
  for (int i = 0; i < 50; ++i) scaled.step(&scaler);
  CHECK(scaler.get_scale() == 256 * 32);
  const std::vector<Tensor> expected = plain.weights(), got = scaled.weights();
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK_FALSE(expected[i].equal(before[i]));
    CHECK(got[i].equal(expected[i]));
  }
}

TEST_CASE("a GAN that never forgets the generator's gradients in the discriminator is refused") {
  Gan gan;
  GradScaler scaler({.init_scale = 256});
  gan.step(&scaler);
  const std::vector<Tensor> before = gan.weights();
  // Used as they are, and after more of the next step's have come.
  CHECK_THROWS_WITH_AS(gan.optimizer_d->step(), doctest::Contains("had unscaled already"), Error);
  CHECK_THROWS_WITH_AS(
      gan.step(&scaler, false),
      doctest::Contains("call optimizer.zero_grad() before the first backward() of a step"), Error);
  CHECK_THROWS_WITH_AS(scaler.unscale_(*gan.optimizer_d),
                       doctest::Contains("GradScaler::unscale_: the gradient of parameter 0"),
                       Error);
  const std::vector<Tensor> after = gan.weights();
  for (size_t i = 0; i < before.size(); ++i) CHECK(after[i].equal(before[i]));
  // Said once more, it goes on.
  CHECK_NOTHROW(gan.step(&scaler));
}
