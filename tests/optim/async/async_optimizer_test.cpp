// Steps on a thread of their own: the same bits as the delayed recurrence on one thread, whatever
// the schedule.
#include "halftape/optim/async/async_optimizer.h"

#include <doctest/doctest.h>

#include <latch>

#include <chrono>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/delayed.h"
#include "halftape/tests/support/many.h"
#include "halftape/tests/support/poke.h"

using namespace halftape;
using namespace halftape::testing;
using optim::AsyncOptimizer;
using optim::AsyncStepOptions;
using optim::StepVerdict;

namespace {

bool same(const TensorList& a, const TensorList& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (!same_bits(a[i], b[i])) return false;
  return a.size() == b.size();
}
bool same(const optim::ParamState& a, const optim::ParamState& b) {
  for (const auto& [key, value] : a)
    if (!b.count(key) || !same_bits(Tensor(value), Tensor(b.at(key)))) return false;
  return a.size() == b.size();
}

/// Empty, or the first thing in which the threaded run is not the recurrence.
std::string differs(const Threaded& got, const Recurrence& expected) {
  for (size_t k = 0; k < got.seen.size(); ++k)
    if (!same(got.seen[k], expected.weights[expected.used[k]]))
      return "weights of forward pass " + std::to_string(k);
  if (!same(got.last, expected.weights.back())) return "last weights";
  for (size_t i = 0; i < expected.state.state.size(); ++i)
    if (!same(got.state.state[i], expected.state.state[i]))
      return "state of parameter " + std::to_string(i);
  return {};
}

std::vector<Turn> turns(size_t n, bool clip, bool skips) {
  std::vector<Turn> script(n);
  for (size_t k = 0; k < n; ++k) {
    script[k].lr = 0.05 / (1 + 0.01 * static_cast<double>(k));
    if (clip) script[k].max_norm = 0.25;
    if (skips) script[k].scale = 1000 + static_cast<double>(k);  // no power of two: rounds
    script[k].overflow = skips && (k == 3 || k == 4 || k % 17 == 9);
  }
  return script;
}

/// Has a step that throws, or that waits to be let go.
class Scripted : public optim::SGD {
 public:
  Scripted(const TensorList& p, std::function<void(int)> at_step)
      : SGD(p, optim::SGDOptions(0.5)), at_step_(std::move(at_step)) {}

 protected:
  void update(const optim::OptimizerOptions& o, const TensorList& p,
              const StepControl& c) override {
    at_step_(calls_++);
    SGD::update(o, p, c);
  }

 private:
  std::function<void(int)> at_step_;
  int calls_ = 0;
};

struct Single {
  explicit Single(std::function<void(int)> at_step = [](int) {})
      : p(ones({2}, requires_grad())),
        optimizer(std::make_unique<Scripted>(TensorList{p}, std::move(at_step))) {}
  optim::AsyncStep step(const AsyncStepOptions& options = {}) {
    p.mutable_grad() = ones({2});
    return optimizer.step(options);
  }
  double value() const { return p.detach().to_vector()[0]; }
  Tensor p;
  AsyncOptimizer optimizer;
};

}  // namespace

TEST_CASE("200 steps on the worker are the delayed recurrence, bit for bit") {
  for (const auto& make : {MakeOptimizer(make_sgd), MakeOptimizer(make_adamw)})
    for (const bool clip : {false, true})
      for (const bool skips : {false, true}) {
        CAPTURE(clip);
        CAPTURE(skips);
        const auto script = turns(200, clip, skips);
        const Recurrence expected = delayed_recurrence(make, script);
        CHECK(differs(run_threaded(make, script), expected) == "");
        // The oracle sees a difference: fresh weights lead elsewhere, and every step moves them.
        auto fresh = script;
        for (Turn& turn : fresh) turn.is_async = false;
        CHECK_FALSE(same(delayed_recurrence(make, fresh).weights.back(), expected.weights.back()));
        for (size_t k = 0; k < 200; ++k)
          CHECK(same(expected.weights[k], expected.weights[k + 1]) == script[k].overflow);
      }
}

TEST_CASE("schedules with random pauses give the same bits") {
  auto script = turns(6, true, true);
  script[2].is_async = false;
  const Recurrence expected = delayed_recurrence(make_adamw, script);
  for (int64_t seed = 0; seed < testing::many(1000, 100); ++seed) {
    const Schedule schedule(static_cast<uint64_t>(seed));
    const std::string difference = differs(run_threaded(make_adamw, script), expected);
    if (difference != "") FAIL_CHECK("schedule ", seed, ": ", difference);
  }
}

TEST_CASE("synchronous and asynchronous steps mix, at random, as the recurrence says") {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    Coin coin{seed};
    auto script = turns(30, seed % 2 == 0, seed % 3 == 0);
    for (Turn& turn : script) turn.is_async = coin.below(2) != 0;
    CHECK(differs(run_threaded(make_sgd, script), delayed_recurrence(make_sgd, script)) == "");
  }
}

TEST_CASE("the weights that a forward pass reads are exactly one step old") {
  Single one;  // w(k) = 1 − k/2
  for (int k = 0; k < 5; ++k) {
    CHECK(one.value() == 1 - 0.5 * std::max(0, k - 1));
    CHECK(one.step().number() == k);
  }
  one.optimizer.drain();
  CHECK(one.value() == 1 - 0.5 * 4);
  one.optimizer.synchronize();
  CHECK(one.value() == 1 - 0.5 * 5);
  one.step({.is_async = false});
  CHECK(one.value() == 1 - 0.5 * 6);
  CHECK(one.optimizer.steps() == 6);
}

TEST_CASE("a step runs while the caller goes on, and the next one waits for it") {
  std::latch forward_done{1};
  std::atomic<bool> second_began{false}, overlapped{false};
  Single one([&](int k) {
    if (k == 0) {
      forward_done.wait();  // would wait for ever, did step() not return before
      overlapped = !second_began;
    } else {
      second_began = true;
    }
  });
  one.step();
  const Tensor forward = (one.p * 2).sum();  // weights are there to be read
  CHECK(forward.item() == 4);
  forward_done.count_down();
  one.step();
  one.optimizer.drain();
  CHECK(overlapped);
  CHECK(second_began);
}

TEST_CASE("hyper-parameters go with the step: a later change counts for the later step") {
  std::latch changed{1};
  Single one([&](int k) {
    if (k == 0) changed.wait();
  });
  one.step();
  one.optimizer.param_groups()[0].options().set_lr(0.125);
  changed.count_down();
  one.optimizer.synchronize();
  CHECK(one.value() == 0.5);
  one.step({.is_async = false});
  CHECK(one.value() == 0.375);
}

TEST_CASE("a step takes the gradients with it, and leaves bytes that others hold to them") {
  Single one;
  one.p.mutable_grad() = full({2}, 8.0);
  const Tensor held = one.p.grad();
  one.optimizer.step({.scale = 8.0});
  CHECK_FALSE(one.p.grad().defined());
  one.optimizer.synchronize();
  CHECK(one.value() == 0.5);
  CHECK(held.equal(full({2}, 8.0)));
  one.p.mutable_grad() = ones({2});
  one.optimizer.zero_grad();
  CHECK_FALSE(one.p.grad().defined());
}

TEST_CASE("the verdict is there before the update runs") {
  std::latch seen{1};
  Single one([&](int) { seen.wait(); });
  const optim::AsyncStep good = one.step({.scale = 4.0});
  CHECK(good.applied());  // waits for the check alone; the update still waits for us
  CHECK(good.verdict() == StepVerdict::Finite);
  seen.count_down();
  one.p.mutable_grad() = full({2}, std::numeric_limits<double>::quiet_NaN());
  const optim::AsyncStep bad = one.optimizer.step({.scale = 4.0});
  CHECK(bad.found_inf());
  CHECK_FALSE(bad.applied());
  CHECK(bad.verdict() == StepVerdict::NonFinite);
  CHECK(bad.scale() == 4);
  CHECK(one.optimizer.step({.scale = 4.0}).verdict() == StepVerdict::NoGradients);
}

TEST_CASE("a skipped step leaves weights and state bit for bit, wherever the infinity stands") {
  for (const auto& make : {MakeOptimizer(make_sgd), MakeOptimizer(make_adamw)})
    for (size_t parameter = 0; parameter < 3; ++parameter)
      for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
        const TensorList model = first_weights();
        AsyncOptimizer optimizer(make(model));
        Turn turn{.scale = 64.0};
        backward(model, 0, turn), optimizer.step(options_of(turn));
        const auto before = optimizer.state_dict();
        backward(model, 1, turn);
        Tensor g = model[parameter].grad();
        testing::poke(g, g.numel() - 1, bad);
        CHECK(optimizer.step(options_of(turn)).found_inf());
        const auto after = optimizer.state_dict();
        for (size_t i = 0; i < 3; ++i) {
          CHECK(same_bits(Tensor(before.newest[i]), Tensor(after.newest[i])));
          CHECK(same(before.optimizer.state[i], after.optimizer.state[i]));
          CHECK(same_bits(model[i], Tensor(before.newest[i])));  // w(1), for forward pass 2
        }
        backward(model, 2, turn), optimizer.step(options_of(turn));
        for (size_t i = 0; i < 3; ++i)
          CHECK(same_bits(model[i], Tensor(before.newest[i])));  // unchanged, for pass 3
      }
}

TEST_CASE("what the worker throws reaches the next call, once, and the step counts as skipped") {
  auto third = [](int k) {
    if (k == 2) throw std::runtime_error("the disk is full");
  };
  using Action = std::function<void(Single&)>;
  for (const Action& call :
       {Action([](Single& s) { s.step(); }), Action([](Single& s) { s.optimizer.drain(); }),
        Action([](Single& s) { s.optimizer.synchronize(); }),
        Action([](Single& s) { s.optimizer.state_dict(); }),
        Action([](Single& s) { s.optimizer.load_state_dict({}); })}) {
    Single one(third);
    one.step(), one.step(), one.step();
    CHECK_THROWS_WITH_AS(call(one), "the disk is full", std::runtime_error);
    one.p.mutable_grad() = Tensor();
    one.optimizer.synchronize();
    CHECK(one.value() == 0);
    one.step({.is_async = false});
    CHECK(one.value() == -0.5);
  }
  Single sync(third);
  sync.step(), sync.step();
  CHECK_THROWS_WITH_AS(sync.step({.is_async = false}), "the disk is full", std::runtime_error);
}

TEST_CASE("a refused step keeps its gradients") {
  Single one([](int k) {
    if (k == 0) throw Error("no");
  });
  one.step();
  one.p.mutable_grad() = ones({2});
  CHECK_THROWS_WITH_AS(one.optimizer.step(), "no", Error);
  CHECK(one.p.grad().defined());
  one.optimizer.step({.is_async = false});
  CHECK(one.value() == 0.5);
}

TEST_CASE("a step that fails before its verdict says Failed instead of keeping others waiting") {
  static std::atomic<bool> armed;
  armed = true;
  const auto former = optim::set_meeting_hook([](optim::Meeting at) {
    if (at == optim::Meeting::Check && armed.exchange(false)) throw Error("out of memory");
  });
  {
    Single one;
    const optim::AsyncStep step = one.step({.scale = 2.0});
    CHECK(step.verdict() == StepVerdict::Failed);
    CHECK_FALSE(step.found_inf());
    CHECK_FALSE(step.applied());
    CHECK_THROWS_WITH_AS(one.optimizer.drain(), "out of memory", Error);
  }
  optim::set_meeting_hook(former);
}

TEST_CASE("the end of the optimizer waits for the step in flight and leaves the newest weights") {
  const Tensor p = ones({2}, requires_grad());
  {
    AsyncOptimizer optimizer(std::make_unique<Scripted>(
        TensorList{p}, [](int) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }));
    p.mutable_grad() = ones({2});
    optimizer.step();
  }
  CHECK(p.equal(full({2}, 0.5)));
}

TEST_CASE("an end with a step in flight leaks nothing and warns of what was thrown") {
  static std::string warning;
  warning.clear();
  const auto former = set_warning_handler([](const std::string& w) { warning = w; });
  const int64_t buffers = Buffer::live_count(), tensors = detail::TensorImpl::live_count();
  for (int i = 0; i < 50; ++i) {
    Single one([](int k) {
      if (k == 1) throw std::runtime_error("too late");
    });
    one.step(), one.step();
  }
  CHECK(Buffer::live_count() == buffers);
  CHECK(detail::TensorImpl::live_count() == tensors);
  CHECK(warning.find("too late") != std::string::npos);
  set_warning_handler(former);
}

TEST_CASE("a run stopped after any of 10 steps goes on with the same bits") {
  auto script = turns(20, true, true);
  script[6].is_async = script[13].is_async = false;
  const Recurrence expected = delayed_recurrence(make_adamw, script);
  for (size_t stop = 0; stop <= 10; ++stop) {
    CAPTURE(stop);
    optim::AsyncOptimizerState saved;
    Threaded run;
    auto part = [&](const TensorList& model, AsyncOptimizer& optimizer, size_t from, size_t to) {
      for (size_t k = from; k < to; ++k) {
        run.seen.push_back(copies(model));
        backward(model, static_cast<int64_t>(k), script[k]);
        optimizer.param_groups()[0].options().set_lr(script[k].lr);
        CHECK(optimizer.step(options_of(script[k])).number() == static_cast<int64_t>(k));
      }
    };
    {
      const TensorList model = first_weights();
      AsyncOptimizer optimizer(make_adamw(model));
      part(model, optimizer, 0, stop);
      saved = optimizer.state_dict();
      part(model, optimizer, stop, stop + 2);  // what was saved is a copy
      run.seen.resize(stop);
    }
    TensorList model = first_weights();
    for (Tensor& w : model) testing::poke(w, 0, 77);
    AsyncOptimizer optimizer(make_adamw(model));
    optimizer.load_state_dict(saved);
    part(model, optimizer, stop, script.size());
    run.state = optimizer.state_dict().optimizer;
    optimizer.synchronize();
    run.last = copies(model);
    CHECK(differs(run, expected) == "");
  }
}

TEST_CASE("a state that does not fit is refused and changes nothing") {
  Single one;
  one.step();
  const auto good = one.optimizer.state_dict();
  auto refused = [&](auto&& spoil) {
    auto bad = good;
    spoil(bad);
    CHECK_THROWS_AS(one.optimizer.load_state_dict(bad), Error);
  };
  refused([](auto& s) { s.newest.pop_back(); });
  refused([](auto& s) { s.weights[0] = full({3}, 0, kFloat32, get_default_device()); });
  refused([](auto& s) { s.newest[0] = full({2}, 0, kFloat64, get_default_device()); });
  refused([](auto& s) { s.optimizer.groups.clear(); });
  one.optimizer.synchronize();
  CHECK(one.value() == 0.5);
}

TEST_CASE("an optimizer that has stepped before is wrapped with its memory") {
  const TensorList model = first_weights(), plain = first_weights();
  auto wrapped = make_adamw(model), other = make_adamw(plain);
  for (int k = 0; k < 3; ++k) {
    backward(model, k, {}), wrapped->step(), wrapped->zero_grad();
    backward(plain, k, {}), other->step(), other->zero_grad();
  }
  AsyncOptimizer optimizer(std::move(wrapped));
  for (int k = 3; k < 6; ++k) {
    backward(model, k, {}), optimizer.step({.is_async = false});
    backward(plain, k, {}), other->step(), other->zero_grad();
    CHECK(same(model, plain));
  }
}

TEST_CASE("weights written by hand are taken over when fresh, and refused when one step old") {
  Single one;
  one.p.detach().fill_(5);  // loaded after the optimizer was made
  one.step();
  CHECK_THROWS_WITH_AS((one.p.detach().fill_(3), one.optimizer.synchronize()),
                       doctest::Contains("synchronize() first"), Error);
  Single two;
  two.step();
  two.optimizer.synchronize();
  two.p.detach().fill_(5);
  CHECK(Tensor(two.optimizer.state_dict().newest[0]).equal(full({2}, 5.0)));
  two.step();
  two.optimizer.synchronize();
  CHECK(two.value() == 4.5);
  one.optimizer.load_state_dict(two.optimizer.state_dict());  // a way out
  one.step({.is_async = false});
  CHECK(one.value() == 4);
}

TEST_CASE("so are weights set by set_data(), whatever their versions, or through a plain pointer") {
  for (const bool written : {false, true}) {
    const auto other = [&] { return written ? full({2}, 5.0).mul_(1) : full({2}, 5.0); };
    Single one;
    one.p.set_data(other());  // before the first step
    one.step();
    one.optimizer.synchronize();
    CHECK(one.value() == 4.5);
    one.p.set_data(other());  // between steps
    one.step();
    CHECK_THROWS_WITH_AS((one.p.set_data(other()), one.optimizer.synchronize()),
                         doctest::Contains("synchronize() first"), Error);
  }
  Single two;
  float* const pointer = two.p.data_ptr<float>();
  two.step();
  two.optimizer.synchronize();
  pointer[0] = pointer[1] = 5;
  two.step({.is_async = false});
  CHECK(two.value() == 4.5);
  two.p.set_data(full({3}, 1.0));
  CHECK_THROWS_WITH_AS(two.optimizer.synchronize(), doctest::Contains("make a new AsyncOptimizer"),
                       Error);
}

TEST_CASE("senseless options and gradients are refused at the call, by name") {
  Single one;
  auto refused = [&](const AsyncStepOptions& options, const char* name) {
    CHECK_THROWS_WITH_AS(one.step(options), doctest::Contains(name), Error);
  };
  refused({.scale = 0.0}, "scale 0");
  refused({.scale = 1e39}, "finite in float32");
  refused({.max_norm = -1.0}, "max_norm -1");
  refused({.max_norm = 1.0, .norm_type = 0}, "norm_type 0");
  one.p.mutable_grad() = ones({3});
  CHECK_THROWS_WITH_AS(one.optimizer.step(), doctest::Contains("[3]"), Error);
  one.optimizer.param_groups()[0].options().set_lr(-1);
  refused({}, "learning rate: -1");
  CHECK(one.optimizer.steps() == 0);
  Single two;
  two.optimizer.param_groups()[0].params().push_back(full({2}, 1.0).requires_grad_());
  CHECK_THROWS_WITH_AS(two.step(), doctest::Contains("group 0 has other parameters"), Error);
  CHECK_THROWS_WITH_AS(AsyncOptimizer(nullptr), "AsyncOptimizer: expected an optimizer, got null",
                       Error);
}
