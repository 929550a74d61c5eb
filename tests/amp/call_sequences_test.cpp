// Every short sequence of a training loop's calls, against a ledger that knows of no scale:
// whatever an optimizer steps with is the sum of the gradients that came since they were last
// forgotten.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <span>
#include <string>

#include "halftape/tests/support/nonfinite.h"
#include "halftape/tests/support/scaled_training.h"

using namespace halftape;

namespace {

/// One weight, which walks by what it is stepped with; every backward pass has a gradient of its
/// own, and every update() doubles the scale.
class Loop {
 public:
  enum Call : uint8_t {
    ScaledBackward,  // through a loss scaled now
    LateBackward,    // through the first loss, scaled at the beginning
    PlainBackward,
    Unscale,
    Clip,  // to a bound that leaves gradients as they are: is it allowed?
    ScalerStep,
    OptimizerStep,
    Update,
    ZeroGrad,
    kCalls
  };

  /// Does the sequence run through, and is each step the ledger's?
  struct Outcome {
    bool threw = false, wrong = false, applied = false;
  };
  Outcome run(std::span<const Call> calls) {
    const Tensor late = scaler_.scale(loss());
    const double late_gradient = given_;
    Outcome outcome;
    double before = 0;
    try {
      for (const Call call : calls) {
        bool stepped = call == OptimizerStep && w_.grad().defined();
        switch (call) {
          case ScaledBackward:
            scaler_.scale(loss()).backward();
            ledger_ += given_;
            break;
          case LateBackward:
            late.backward({}, true);
            ledger_ += late_gradient;
            break;
          case PlainBackward:
            loss().backward();
            ledger_ += given_;
            break;
          case Unscale:
            scaler_.unscale_(optimizer_);
            break;
          case Clip:
            clip(ledger_);
            break;
          case ScalerStep:
            stepped = scaler_.step(optimizer_).applied();
            break;
          case OptimizerStep:
            optimizer_.step();
            break;
          case Update:
            scaler_.update();
            break;
          case ZeroGrad:
            optimizer_.zero_grad();
            ledger_ = 0;
            break;
          default:
            break;
        }
        const double walked = before - w_.item<double>();
        before -= walked;
        outcome.wrong |= walked != (stepped ? ledger_ : 0);
        outcome.applied |= stepped;
      }
    } catch (const Error&) {
      outcome.threw = true;
      outcome.wrong |= w_.item<double>() != before;
    }
    return outcome;
  }

 private:
  /// A loss whose gradient is the next of 3, 5, 7, 9 …
  Tensor loss() {
    given_ += 2;
    return (w_ * given_).sum();
  }
  /// Clips the true gradient to its own norm, so to nothing; a wrong one it would change.
  void clip(double norm) { nn::utils::clip_grad_norm_({w_}, norm > 0 ? norm + 1 : 1); }

  Tensor w_ = zeros({1}, requires_grad());
  optim::SGD optimizer_{{w_}, optim::SGDOptions(1.0)};
  amp::GradScaler scaler_{{.init_scale = 256, .growth_interval = 1}};
  double given_ = 1, ledger_ = 0;
};

constexpr const char* kNames[Loop::kCalls] = {"scaled_backward", "late_backward", "backward",
                                              "unscale_",        "clip",          "scaler.step",
                                              "optimizer.step",  "update",        "zero_grad"};

/// Counts the sequences of up to `left` further calls that run through, by whether they stepped;
/// what throws changes nothing, so no sequence goes on from there.
struct Count {
  int64_t right = 0, idle = 0, refused = 0, wrong = 0;
};
void count(std::vector<Loop::Call>& calls, int left, Count& all) {
  for (int c = 0; c < Loop::kCalls; ++c) {
    calls.push_back(static_cast<Loop::Call>(c));
    const Loop::Outcome o = Loop().run(calls);
    ++(o.wrong ? all.wrong : o.threw ? all.refused : o.applied ? all.right : all.idle);
    if (o.wrong) {
      std::string names;
      for (const Loop::Call call : calls) names += kNames[call] + std::string(" ");
      FAIL_CHECK(names, "goes wrong silently");
    }
    if (!o.threw && !o.wrong && left > 1) count(calls, left - 1, all);
    calls.pop_back();
  }
}

}  // namespace

TEST_CASE("no sequence of up to six calls of a loop steps with anything but true gradients") {
  std::vector<Loop::Call> calls;
  Count all;
  count(calls, 6, all);
  CHECK(all.wrong == 0);
  CHECK(all.right > 20000);
  CHECK(all.refused > 40000);
}

TEST_CASE("an optimizer without parameters is refused by a scaler as by its own step()") {
  optim::SGD none(TensorList{}, optim::SGDOptions(1));
  CHECK_THROWS_WITH_AS(none.step(), doctest::Contains("no parameters"), Error);
  const Tensor w = ones({2}, requires_grad());
  amp::GradScaler scaler({.init_scale = 8});
  scaler.scale(w.sum()).backward();
  const auto refused = doctest::Contains("no parameters; are the modules registered?");
  CHECK_THROWS_WITH_AS(scaler.unscale_(none), refused, Error);
  CHECK_THROWS_WITH_AS(scaler.step(none), refused, Error);
}

TEST_CASE("a scaler that moves between any two calls of a loop goes on as it was") {
  for (int place = 0; place < 20; ++place) {
    CAPTURE(place);
    testing::ScaledTraining t({.init_scale = 64, .growth_interval = 2});
    int at = 0;
    const auto move = [&] {
      if (at++ != place) return;
      amp::GradScaler elsewhere(std::move(t.scaler));
      t.scaler = std::move(elsewhere);
    };
    for (const bool bad : {false, true, false, false}) {
      t.optimizer.zero_grad();
      move();
      const Tensor loss = t.scaler.scale(t.loss());
      move();
      loss.backward();
      if (bad) t.c.grad().fill_(testing::kInf);
      move();
      t.scaler.unscale_(t.optimizer);
      move();
      CHECK(t.scaler.step(t.optimizer).found_inf() == bad);
      move();
      t.scaler.update();
    }
    CHECK(at == 20);
    for (const Tensor& p : {t.a, t.b, t.c})
      CHECK(p.equal(full(p.sizes(), 0.625)));  // three steps of 0.125
    CHECK(t.scaler.get_scale() == 64);         // 64 → 32 → 64
    CHECK(t.scaler.get_growth_tracker() == 0);
    const amp::ScalerStats stats = t.scaler.stats();
    CHECK(stats.steps == 4);
    CHECK(stats.skips == 1);
    CHECK(stats.growths == 1);
    CHECK(stats.backoffs == 1);
    REQUIRE(stats.nonfinite);
    CHECK(stats.nonfinite->index == 2);
  }
  testing::ScaledTraining t;
  t.scaler.scale(t.loss()).backward();
  t.scaler.unscale_(t.optimizer);
  amp::GradScaler moved(std::move(t.scaler));
  CHECK_THROWS_WITH_AS(moved.unscale_(t.optimizer),
                       doctest::Contains("already called for this optimizer"), Error);
  CHECK(moved.step(t.optimizer).applied());
}
