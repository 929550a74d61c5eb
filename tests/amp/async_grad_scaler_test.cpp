// Loss scaling with a step in flight: the scales of Prompt are the synchronous scaler's, those of
// Late are RoundPipe's, and neither depends on the schedule.
#include <doctest/doctest.h>

#include <cmath>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/delayed.h"
#include "halftape/tests/support/many.h"
#include "halftape/tests/support/nonfinite.h"

using namespace halftape;
using namespace halftape::testing;
using amp::AsyncGradScaler;
using amp::GradScaler;
using amp::GradScalerOptions;
using amp::ScaleDelivery;
using optim::AsyncOptimizer;

namespace {

/// One parameter whose gradient overflows whenever the scale is above `limit`.
struct Limited {
  Limited(ScaleDelivery delivery, double scale, int64_t interval = 2000, double most = 64)
      : scaler({.init_scale = scale, .growth_interval = interval}, delivery), limit(most) {}
  /// The scale that multiplied this step's loss.
  double step() {
    scaler.scale(loss);
    const double used = scaler.get_scale();
    p.mutable_grad() = full({1}, used > limit ? kInf : used);
    steps.push_back(scaler.step(optimizer));
    scaler.update();
    return used;
  }
  int64_t skips(size_t from = 0) const {
    int64_t n = 0;
    for (size_t k = from; k < steps.size(); ++k) n += steps[k].found_inf();
    return n;
  }
  Tensor p = ones({1}, requires_grad()), loss = ones({});
  AsyncOptimizer optimizer{
      std::make_unique<optim::SGD>(std::vector<Tensor>{p}, optim::SGDOptions(0.001))};
  AsyncGradScaler scaler;
  double limit;
  std::vector<optim::AsyncStep> steps;
};

/// RoundPipe's own bookkeeping: the main thread's scale S, and N, decided but not in use.
struct RoundPipe {
  float S, N;
  int32_t tracker = 0;
  ScaleLaw law = {};
  void update(bool found_inf, bool is_async) {
    S = N;
    const ScaleState moved = next({N, tracker}, found_inf, law);
    N = moved.scale;
    tracker = moved.growth_tracker;
    if (!is_async) S = N;
  }
};

GradScalerOptions odd_factors() {
  return {.init_scale = 3000, .growth_factor = 1.7, .backoff_factor = 0.3, .growth_interval = 3};
}

/// A whole run of the problem, with accidents at random; the script notes the scales in use.
struct RandomRun {
  TensorList weights;
  std::vector<Turn> script;
  std::vector<double> reported;  // AsyncStep::scale()
};

RandomRun train(ScaleDelivery delivery, int steps, uint32_t seed) {
  const TensorList model = first_weights();
  AsyncOptimizer optimizer(make_adamw(model));
  AsyncGradScaler scaler(odd_factors(), delivery);
  RandomRun run;
  Coin coin{seed};
  for (int k = 0; k < steps; ++k) {
    Turn turn{.max_norm = 0.5, .overflow = coin.below(5) == 0};
    scaler.scale(batch_loss(model, k)).backward();
    turn.scale = scaler.get_scale();
    spoil(model, turn);
    run.reported.push_back(scaler.step(optimizer, {.max_norm = turn.max_norm}).scale());
    scaler.update();
    run.script.push_back(turn);
  }
  optimizer.synchronize();
  run.weights = copies(model);
  return run;
}

bool same(const TensorList& a, const TensorList& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (!same_bits(a[i], b[i])) return false;
  return a.size() == b.size();
}

constexpr ScaleDelivery both[] = {ScaleDelivery::Prompt, ScaleDelivery::Late};

}  // namespace

static_assert(!std::is_copy_constructible_v<amp::AsyncGradScaler> &&
              std::is_move_constructible_v<amp::AsyncGradScaler>);

TEST_CASE("Prompt scales the losses exactly as the synchronous scaler does") {
  const RandomRun run = train(ScaleDelivery::Prompt, 200, 7);
  const Tensor p = ones({1}, requires_grad());
  optim::SGD optimizer({p}, optim::SGDOptions(0.1));
  GradScaler scaler(odd_factors());
  int overflows = 0;
  for (const Turn& turn : run.script) {
    CHECK(*turn.scale == scaler.get_scale());
    scaler.scale(p.sum()).backward();
    if (turn.overflow) p.mutable_grad() = full({1}, kInf);
    scaler.step(optimizer);
    scaler.update();
    optimizer.zero_grad();
    overflows += turn.overflow;
  }
  CHECK(overflows > 20);
}

TEST_CASE("Late scales the losses as RoundPipe's two scales say, however updates wait") {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    Coin coin{seed};
    RoundPipe oracle{1024, 1024};
    oracle.law.growth_interval = 3;
    const Tensor p = ones({1}, requires_grad());
    AsyncOptimizer optimizer(
        std::make_unique<optim::SGD>(std::vector<Tensor>{p}, optim::SGDOptions(0.1)));
    AsyncGradScaler scaler({.init_scale = 1024, .growth_interval = 3}, ScaleDelivery::Late);
    for (int k = 0; k < 60; ++k) {
      scaler.scale(ones({}));
      CHECK(scaler.get_scale() == oracle.S);
      const bool bad = coin.below(4) == 0, waits = coin.below(3) == 0;
      p.mutable_grad() = full({1}, bad ? kInf : 1);
      scaler.step(optimizer, {.is_async = coin.below(3) != 0});
      scaler.update({.is_async = !waits});
      oracle.update(bad, !waits);
      if (coin.below(4) == 0) {
        CHECK(scaler.get_scale(true) == oracle.N);
        CHECK(scaler.get_growth_tracker(true) == oracle.tracker);
      }
      CHECK(scaler.get_scale() == oracle.S);
    }
  }
}

TEST_CASE("every step is divided by the scale of its loss, and weights are the recurrence's") {
  for (const ScaleDelivery delivery : both) {
    const RandomRun run = train(delivery, 60, 3);
    for (size_t k = 0; k < run.script.size(); ++k) CHECK(run.reported[k] == *run.script[k].scale);
    CHECK(same(run.weights, delayed_recurrence(make_adamw, run.script).weights.back()));
    // With powers of two, scaling leaves no trace at all.
    auto train_at = [&](double scale) {
      const TensorList model = first_weights();
      AsyncOptimizer optimizer(make_sgd(model));
      AsyncGradScaler scaler({.init_scale = scale, .growth_interval = 4}, delivery);
      for (int k = 0; k < 12; ++k) {
        scaler.scale(batch_loss(model, k)).backward();
        scaler.step(optimizer);
        scaler.update();
      }
      optimizer.synchronize();
      return copies(model);
    };
    CHECK(same(train_at(1), train_at(4096)));
  }
}

TEST_CASE("schedules with random pauses give the same scales and the same bits") {
  for (const ScaleDelivery delivery : both) {
    const RandomRun expected = train(delivery, 8, 5);
    for (int64_t seed = 0; seed < testing::many(1000, 100); ++seed) {
      const Schedule schedule(static_cast<uint64_t>(seed));
      const RandomRun run = train(delivery, 8, 5);
      bool equal = same(run.weights, expected.weights);
      for (size_t k = 0; k < 8; ++k) equal &= run.script[k].scale == expected.script[k].scale;
      if (!equal) FAIL_CHECK("schedule ", seed);
    }
  }
}

TEST_CASE("one overflow costs Prompt one skip and one halving, Late two") {
  Limited prompt(ScaleDelivery::Prompt, 128), late(ScaleDelivery::Late, 128);
  for (int k = 0; k < 10; ++k) prompt.step(), late.step();
  CHECK(prompt.skips() == 1);
  CHECK(prompt.scaler.get_scale() == 64);
  CHECK(late.skips() == 2);
  CHECK(late.scaler.get_scale() == 32);
}

TEST_CASE("from 2^16 Prompt skips 10 times and lands on 64, Late 11 times and on 32") {
  Limited prompt(ScaleDelivery::Prompt, 65536), late(ScaleDelivery::Late, 65536);
  for (int k = 0; k < 100; ++k) prompt.step(), late.step();
  CHECK(prompt.skips() == 10);
  CHECK(prompt.scaler.get_scale() == 64);
  CHECK(late.skips() == 11);
  CHECK(late.scaler.get_scale() == 32);
}

TEST_CASE("over 60000 steps both laws skip 30 times, and Late's scale is half a binade lower") {
  // Settled: the first 10 intervals are left out. A cycle is an interval at the best scale and the
  // overflow after it; Late spends another interval one binade lower. The worker runs the first of
  // ten times shorter intervals, and there each scale has to be the law's.
  for (const ScaleDelivery delivery : both) {
    const bool late = delivery == ScaleDelivery::Late;
    CAPTURE(late);
    auto law_of = [](int64_t interval) {
      RoundPipe law{65536, 65536};
      law.law.growth_interval = interval;
      return law;
    };
    RoundPipe law = law_of(2000), shorter = law_of(200);
    int64_t skips = 0, best = 0;
    double sum = 0;
    for (int k = 0; k < 20000 + 60000; ++k) {
      const float used = law.S;
      law.update(used > 64, late);
      if (k < 20000) continue;
      skips += used > 64;
      best += used == 64;
      sum += std::log2(used);
    }
    CHECK(skips == 30);
    CHECK(std::abs(sum / 60000 - (late ? 5.501 : 6.000)) < 0.001);
    CHECK(std::abs(static_cast<double>(best) / 60000 - (late ? 0.500 : 1.000)) < 0.001);
    Limited run(delivery, 65536, 200);
    for (int k = 0; k < 1300; ++k) {
      const double used = shorter.S;
      CHECK(run.step() == used);
      shorter.update(used > 64, late);
    }
    CHECK(run.skips(20) == 6);
  }
}

TEST_CASE("a factor that is set counts for later updates, not for the one that is awaited") {
  for (const ScaleDelivery delivery : both) {
    Limited run(delivery, 1024, 2000, 4);
    run.step();
    run.scaler.set_backoff_factor(0.25);
    CHECK(run.scaler.get_backoff_factor() == 0.25);
    CHECK(run.scaler.get_scale(true) == 512);
    run.step();
    CHECK(run.scaler.get_scale(true) == 128);
    run.scaler.set_growth_interval(1);
    run.scaler.set_growth_factor(8);
    run.limit = 1e30;
    run.step();
    CHECK(run.scaler.get_growth_factor(true) == 8);
    CHECK(run.scaler.get_growth_interval(true) == 1);
    CHECK(run.scaler.get_scale(true) == 1024);
    CHECK_THROWS_WITH_AS(run.scaler.set_growth_factor(0.5), doctest::Contains("growth_factor"),
                         Error);
    CHECK_THROWS_WITH_AS(run.scaler.set_backoff_factor(2), doctest::Contains("backoff_factor"),
                         Error);
    CHECK_THROWS_WITH_AS(run.scaler.set_growth_interval(0), doctest::Contains("growth_interval"),
                         Error);
    CHECK(run.scaler.get_growth_factor() == 8);
  }
}

TEST_CASE("get_scale tells the scale in use, or the newest when asked") {
  Limited prompt(ScaleDelivery::Prompt, 128), late(ScaleDelivery::Late, 128);
  prompt.step(), late.step();
  CHECK(prompt.scaler.get_scale() == 128);
  CHECK(prompt.scaler.get_scale(true) == 64);
  CHECK(late.scaler.get_scale(true) == 64);
  CHECK(prompt.step() == 64);
  CHECK(late.step() == 128);  // decided, but of the pass after
  prompt.scaler.scale(prompt.loss);
  prompt.p.mutable_grad() = full({1}, kInf);
  prompt.scaler.step(prompt.optimizer);
  prompt.scaler.update({.is_async = false});
  CHECK(prompt.scaler.get_scale() == 32);
}

TEST_CASE("a scale that is given replaces the law's, one pass later in Late") {
  Limited prompt(ScaleDelivery::Prompt, 16), late(ScaleDelivery::Late, 16);
  for (Limited* run : {&prompt, &late}) {
    run->step();
    run->scaler.update(8.0);
    CHECK(run->scaler.get_growth_tracker(true) == 1);
  }
  CHECK(prompt.step() == 8);
  CHECK(late.step() == 16);
  CHECK(late.step() == 8);
  late.scaler.update({.new_scale = 4, .is_async = false});
  CHECK(late.scaler.get_scale() == 4);
  CHECK_THROWS_WITH_AS(late.scaler.update(-1.0), doctest::Contains("scale -1"), Error);
  CHECK(late.step() == 4);
}

TEST_CASE("of two optimizers only the overflowing one skips, and the scale backs off once") {
  Limited one(ScaleDelivery::Prompt, 16), two(ScaleDelivery::Prompt, 16);
  one.scaler.scale(one.loss);
  one.p.mutable_grad() = full({1}, kInf);
  two.p.mutable_grad() = full({1}, 16.0);
  const auto bad = one.scaler.step(one.optimizer), good = one.scaler.step(two.optimizer);
  one.scaler.update();
  CHECK(bad.found_inf());
  CHECK(good.applied());
  CHECK(one.scaler.get_scale(true) == 8);
  one.scaler.scale(one.loss);
  CHECK_FALSE(one.scaler.step(one.optimizer).applied());  // without gradients nothing is learnt
  one.scaler.update();
  CHECK(one.scaler.get_scale(true) == 8);
  CHECK(one.scaler.get_growth_tracker() == 0);
}

TEST_CASE("a step that fails before its verdict moves no scale and keeps nobody waiting") {
  static std::atomic<bool> armed;
  Limited run(ScaleDelivery::Prompt, 16, 1);
  armed = true;
  optim::set_meeting_hook([](optim::Meeting at) {
    if (at == optim::Meeting::Check && armed.exchange(false)) throw Error("out of memory");
  });
  run.step();
  run.scaler.scale(run.loss);
  CHECK(run.scaler.get_scale() == 16);
  CHECK_THROWS_WITH_AS(run.scaler.step(run.optimizer), "out of memory", Error);
  optim::set_meeting_hook(nullptr);
  run.step();
  CHECK(run.scaler.get_scale(true) == 32);
}

TEST_CASE("an asynchronous run stopped after any of 10 steps goes on with the same bits") {
  for (const ScaleDelivery delivery : both)
    for (int stop = 0; stop <= 10; ++stop) {
      CAPTURE(stop);
      const RandomRun expected = train(delivery, 20, 9);
      optim::AsyncOptimizerState weights;
      AsyncGradScaler::StateDict scales;
      TensorList last;
      auto part = [&](int from, int to) {
        const TensorList model = first_weights();
        AsyncOptimizer optimizer(make_adamw(model));
        AsyncGradScaler scaler(odd_factors(), delivery);
        if (from > 0) optimizer.load_state_dict(weights), scaler.load_state_dict(scales);
        for (int k = from; k < to; ++k) {
          const Turn& turn = expected.script[static_cast<size_t>(k)];
          scaler.scale(batch_loss(model, k)).backward();
          CHECK(scaler.get_scale() == *turn.scale);
          spoil(model, turn);
          scaler.step(optimizer, {.max_norm = turn.max_norm});
          scaler.update();
        }
        scales = scaler.state_dict();
        weights = optimizer.state_dict();
        optimizer.synchronize();
        last = copies(model);
      };
      part(0, stop), part(stop, 20);
      CHECK(same(last, expected.weights));
    }
}

TEST_CASE("a state with a missing or senseless value is refused, and a GradScaler's is taken") {
  Limited run(ScaleDelivery::Late, 128);
  run.step();
  const auto good = run.scaler.state_dict();
  CHECK(good.at("scale") == 64);
  CHECK(good.at("_scale_in_use") == 128);
  auto broken = good;
  broken.erase("_growth_tracker");
  CHECK_THROWS_WITH_AS(run.scaler.load_state_dict(broken), doctest::Contains("_growth_tracker"),
                       Error);
  broken = good;
  broken["_scale_in_use"] = 0;
  CHECK_THROWS_WITH_AS(run.scaler.load_state_dict(broken), doctest::Contains("scale 0"), Error);
  CHECK(run.scaler.state_dict() == good);
  run.scaler.load_state_dict(GradScaler({.init_scale = 4}).state_dict());
  CHECK(run.step() == 4);
}

TEST_CASE("asynchronous calls in a wrong order throw and name the missing call") {
  Limited run(ScaleDelivery::Prompt, 4);
  AsyncGradScaler& scaler = run.scaler;
  CHECK_THROWS_WITH_AS(scaler.step(run.optimizer), doctest::Contains("scaler.scale(loss)"), Error);
  CHECK_THROWS_WITH_AS(scaler.update(), doctest::Contains("scaler.step(optimizer)"), Error);
  run.step();
  CHECK_THROWS_WITH_AS(scaler.step(run.optimizer), doctest::Contains("scaler.scale(loss)"), Error);
  CHECK_THROWS_WITH_AS(scaler.update(), doctest::Contains("scaler.step(optimizer)"), Error);
  scaler.scale(run.loss);
  CHECK_THROWS_WITH_AS(scaler.step(run.optimizer, {.scale = 3.0}),
                       doctest::Contains("options.scale"), Error);
  CHECK_THROWS_WITH_AS(scaler.scale(ones({}, kInt64)),
                       doctest::Contains("AsyncGradScaler::scale: the loss, [], is int64"), Error);
  CHECK_THROWS_WITH_AS(AsyncGradScaler({.init_scale = -1}), doctest::Contains("scale -1"), Error);
}

TEST_CASE("float16 gradients are refused with the cure, or allowed on request, asynchronously") {
  const Tensor p = ones({2}, TensorOptions(kFloat16).requires_grad(true));
  AsyncOptimizer optimizer(
      std::make_unique<optim::SGD>(std::vector<Tensor>{p}, optim::SGDOptions(0.5)));
  AsyncGradScaler strict({.init_scale = 4});
  strict.scale(p.sum()).backward();
  CHECK_THROWS_WITH_AS(strict.step(optimizer), doctest::Contains("allow_fp16_grads"), Error);
  AsyncGradScaler lenient({.init_scale = 4, .allow_fp16_grads = true});
  optimizer.zero_grad();
  lenient.scale(p.sum()).backward();
  CHECK(lenient.step(optimizer, {.is_async = false}).applied());
  CHECK(p.equal(full({2}, 0.5, kFloat16)));
}

TEST_CASE("a disabled scaler hands steps over as they are") {
  GradScalerOptions o;
  o.enabled = false;
  AsyncGradScaler scaler(o);
  const Tensor p = ones({2}, requires_grad()), loss = (p * 2).sum();
  AsyncOptimizer optimizer(
      std::make_unique<optim::SGD>(std::vector<Tensor>{p}, optim::SGDOptions(0.25)));
  CHECK(scaler.scale(loss).is_same(loss));
  loss.backward();
  CHECK(scaler.step(optimizer).scale() == 1);
  scaler.update(), scaler.update();
  optimizer.synchronize();
  CHECK(p.equal(full({2}, 0.5)));
  scaler.load_state_dict({{"scale", 7}});
  CHECK(scaler.get_scale() == 1);
  CHECK(scaler.get_scale(true) == 1);
  CHECK(scaler.state_dict().empty());
  CHECK(scaler.stats().steps == 0);
}
