// Every order in which the six calls of a training step can stand: right, or refused, or reported
// as a step that did nothing. Never silently wrong.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <algorithm>
#include <array>
#include <map>

using namespace halftape;

namespace {

enum class StepCall { Scale, Backward, Unscale, Clip, Step, Update };
using Order = std::array<StepCall, 6>;

constexpr double kMaxNorm = 0.5;

struct Outcome {
  bool threw = false, applied = false, clipped_before = false;
  std::vector<double> weights;
};

/// `unscaled_backward`: a backward() before scale() goes through the loss itself; otherwise through
/// the scaled loss, which is not there yet.
Outcome run(const Order& order, bool unscaled_backward) {
  const Tensor w = tensor({3.0, -4.0}, requires_grad());
  optim::SGD optimizer({w}, optim::SGDOptions(1.0));
  amp::GradScaler scaler({.init_scale = 1024});
  const Tensor loss = (w * w).sum();
  Tensor scaled = unscaled_backward ? loss : Tensor();
  Outcome outcome;
  bool stepped = false;
  try {
    for (const StepCall call : order) {
      if (call == StepCall::Scale) scaled = scaler.scale(loss);
      if (call == StepCall::Backward) scaled.backward({}, true);
      if (call == StepCall::Unscale) scaler.unscale_(optimizer);
      if (call == StepCall::Clip) {
        nn::utils::clip_grad_norm_({w}, kMaxNorm);
        outcome.clipped_before = !stepped && w.grad().defined();
      }
      if (call == StepCall::Step)
        outcome.applied = scaler.step(optimizer).applied(), stepped = true;
      if (call == StepCall::Update) scaler.update();
    }
  } catch (const Error&) {
    outcome.threw = true;
  }
  outcome.weights = w.to_vector();
  return outcome;
}

/// One plain step, with clipping or without.
std::vector<double> expected(bool clipped) {
  const Tensor w = tensor({3.0, -4.0}, requires_grad());
  optim::SGD optimizer({w}, optim::SGDOptions(1.0));
  (w * w).sum().backward();
  if (clipped) nn::utils::clip_grad_norm_({w}, kMaxNorm);
  optimizer.step();
  return w.to_vector();
}

}  // namespace

TEST_CASE("of the 720 orders of a step's calls none is silently wrong") {
  const std::vector<double> before = {3, -4};
  for (const bool unscaled_backward : {false, true}) {
    CAPTURE(unscaled_backward);
    Order order = {StepCall::Scale, StepCall::Backward, StepCall::Unscale,
                   StepCall::Clip,  StepCall::Step,     StepCall::Update};
    int orders = 0, right = 0, refused = 0, nothing_done = 0, wrong = 0;
    do {
      ++orders;
      const Outcome o = run(order, unscaled_backward);
      if (o.threw) {
        ++refused;
        // What was refused did no harm: the weights are as they were, or stepped rightly.
        wrong += o.weights != before && o.weights != expected(o.clipped_before);
      } else if (o.applied) {
        ++right;
        wrong += o.weights != expected(o.clipped_before);
      } else {
        ++nothing_done;  // StepResult said so
        wrong += o.weights != before;
      }
    } while (std::next_permutation(order.begin(), order.end()));
    CHECK(orders == 720);
    CHECK(wrong == 0);
    // scale, backward, unscale_, step, update, with clip at one of the four places at which the
    // gradients are true or not yet there.
    CHECK(right == 5);
    // backward() only after the step, and clip before it: unscale_, step, update, backward with
    // clip at one of five places; or step, update, unscale_; or unscale_, update, step; and with
    // backward before update at one of four.
    CHECK(nothing_done == 19);
    CHECK(refused == 720 - right - nothing_done);
  }
}

TEST_CASE("what is refused names the missing call") {
  const Tensor w = tensor({3.0, -4.0}, requires_grad());
  optim::SGD optimizer({w}, optim::SGDOptions(1.0));
  amp::GradScaler scaler({.init_scale = 1024});
  const auto loss = [&] { return (w * w).sum(); };

  loss().backward();
  const Tensor scaled = scaler.scale(loss());
  CHECK_THROWS_WITH_AS(scaler.unscale_(optimizer),
                       doctest::Contains("call scaler.scale(loss).backward()"), Error);
  scaled.backward();
  CHECK_THROWS_WITH_AS(scaler.unscale_(optimizer), doctest::Contains("for every loss"), Error);

  optimizer.zero_grad();
  scaler.scale(loss()).backward();
  CHECK_THROWS_WITH_AS(nn::utils::clip_grad_norm_({w}, 1),
                       doctest::Contains("clip_grad_norm_: the gradients are still multiplied"),
                       Error);
  CHECK_THROWS_WITH_AS(nn::utils::clip_grad_value_({w}, 1),
                       doctest::Contains("scaler.unscale_(optimizer)"), Error);
  CHECK_THROWS_WITH_AS(optimizer.step(), doctest::Contains("scaler.step(optimizer)"), Error);

  scaler.unscale_(optimizer);
  scaler.step(optimizer);
  scaler.update();
  scaler.scale(loss());
  CHECK_THROWS_WITH_AS(scaler.step(optimizer), doctest::Contains("it was unscaled already"), Error);
  scaler.scale(loss()).backward();
  CHECK_THROWS_WITH_AS(scaler.step(optimizer), doctest::Contains("optimizer.zero_grad()"), Error);
}

TEST_CASE("a gradient that arrives after unscale_ is not stepped with") {
  const Tensor a = ones({2}, requires_grad()), b = ones({2}, requires_grad());
  optim::SGD optimizer({a, b}, optim::SGDOptions(1.0));
  for (const bool some_before : {false, true}) {
    amp::GradScaler scaler({.init_scale = 8});
    optimizer.zero_grad();
    if (some_before)
      scaler.scale(a.sum()).backward();
    else
      scaler.scale(full({}, 1.0));
    scaler.unscale_(optimizer);
    scaler.scale(b.sum()).backward();
    CHECK_THROWS_WITH_AS(scaler.step(optimizer), doctest::Contains("after the last backward()"),
                         Error);
  }
  CHECK(a.equal(ones({2})));
}

TEST_CASE("backward after update() is refused where an op was told the scale, and only there") {
  for (const int how : {0, 1, 2, 3}) {
    CAPTURE(how);
    const bool told = how < 3;
    const Tensor w = ones({2}, requires_grad());
    optim::SGD sgd({w}, optim::SGDOptions(0.1));
    amp::GradScaler scaler({.growth_interval = 1});
    for (int i = 0; i < 3; ++i) {
      sgd.zero_grad();
      if (told && i < 2) (void)scaler.factor();
      const Tensor now = scaler.scale(w.sum()), late = scaler.scale(w.sum());
      now.backward();
      scaler.step(sgd);
      how == 1 ? scaler.update(32) : how == 2 ? scaler.update(full({}, 32.0)) : scaler.update();
      sgd.zero_grad();
      // Before the first scale() there is no factor to tell.
      if (told && i == 1)
        CHECK_THROWS_WITH_AS(late.backward(), doctest::Contains("`scale` needs was changed"),
                             Error);
      else
        CHECK_NOTHROW(late.backward());
    }
  }
}
