// A training step that fails anywhere: the next one works, and no gradient is applied twice.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <functional>
#include <new>
#include <vector>

#include "halftape/tests/support/failing.h"
#include "halftape/tests/support/optimizers.h"

using namespace halftape;

namespace {

constexpr double kRate = 0.125;

/// Two weights w and the loss w², in numbers that all steps keep exact.
struct ExactTraining {
  explicit ExactTraining(bool with_unscale, Dtype dtype = kFloat32)
      : unscales(with_unscale),
        weights{full({3}, 1.0, TensorOptions(dtype).requires_grad(true)),
                full({2}, 2.0, TensorOptions(dtype).requires_grad(true))} {}
  bool unscales;
  std::vector<Tensor> weights;
  // A group for each, so that a step may fail after one of them has moved.
  optim::SGD optimizer{std::vector<optim::OptimizerParamGroup>{{{weights[0]}}, {{weights[1]}}},
                       optim::SGDOptions(kRate)};
  amp::GradScaler scaler{{.init_scale = 64, .allow_fp16_grads = true}};

  Tensor loss() const { return (weights[0] * weights[0]).sum() + (weights[1] * weights[1]).sum(); }
  void backward() {
    optimizer.zero_grad();
    scaler.scale(loss()).backward();
  }
  void step() {
    if (unscales) scaler.unscale_(optimizer);
    scaler.step(optimizer);
  }
  void all() { backward(), step(), scaler.update(); }
  std::vector<double> values() const {
    return {weights[0][0].item<double>(), weights[1][0].item<double>()};
  }
};

std::vector<double> stepped(std::vector<double> w) {
  for (double& x : w) x -= kRate * 2 * x;
  return w;
}

/// What became of a failure. Where the library can do without the memory, as without a thread of
/// its pool, it goes on and tells nobody.
struct Failure {
  bool reached = false;  // by the calls
  bool thrown = false;   // to the caller
};

/// Whether the failing backend has still to fail: then one of as many further calls does.
bool is_to_fail(int64_t nth) {
  try {
    for (int64_t i = 0; i < nth; ++i) backend(get_default_device()).allocate(1);
  } catch (const std::bad_alloc&) {
    return true;
  }
  return false;
}

/// Calls `f` with the n-th operator new, or else the n-th call of the backend, failing.
Failure fail(bool host, int64_t nth, const std::function<void()>& f) {
  Failure failure;
  const auto call = [&] {
    try {
      f();
    } catch (const std::bad_alloc&) {
      failure.thrown = true;
    } catch (const OutOfMemoryError&) {
      failure.thrown = true;
    }
  };
  if (host) {
    testing::fail_new(nth);
    call();
    failure.reached = testing::fail_new(0) == 0;
  } else {
    const testing::FailingBackend failing(nth);
    call();
    failure.reached = !is_to_fail(nth);
  }
  CHECK((failure.reached || !failure.thrown));  // memory was not short by itself
  return failure;
}

/// A step asks the host for lists of the parameters, of their gradients, and of those of each
/// group, and the backend for a check and an update of each group.
int64_t least_places(bool host) { return host ? 6 : 3; }

/// For every way of training and every place of `part` that may fail.
void at_every_place(const std::function<void(ExactTraining&)>& prepare,
                    const std::function<void(ExactTraining&)>& part,
                    const std::function<void(ExactTraining&, const std::vector<double>&)>& after) {
  for (const bool host : {true, false})
    for (const bool unscales : {false, true})
      for (const Dtype dtype : {kFloat32, kFloat16}) {
        CAPTURE(host);
        CAPTURE(unscales);
        CAPTURE(dtype);
        int64_t places = 0;
        for (int64_t nth = 1;; ++nth) {
          CAPTURE(nth);
          ExactTraining t(unscales, dtype);
          t.all();
          prepare(t);
          const std::vector<double> before = t.values();
          const Failure failure = fail(host, nth, [&] { part(t); });
          const std::vector<double> now = t.values();
          if (!failure.thrown) CHECK(now == stepped(before));
          if (!failure.reached) break;
          ++places;
          for (size_t i = 0; i < now.size(); ++i)
            CHECK((now[i] == before[i] || now[i] == stepped(before)[i]));
          if (failure.thrown) after(t, before);
        }
        CHECK(places >= least_places(host));
      }
}

}  // namespace

TEST_CASE("after a step that failed anywhere the next iteration is right" *
          doctest::skip(!testing::can_fail_new())) {
  at_every_place([](ExactTraining& t) { t.backward(); }, [](ExactTraining& t) { t.step(); },
                 [](ExactTraining& t, const std::vector<double>&) {
                   const std::vector<double> now = t.values();
                   t.all();
                   CHECK(t.values() == stepped(now));
                   CHECK(t.scaler.get_scale() == 64);
                 });
}

TEST_CASE("after an iteration that failed anywhere the next one is right" *
          doctest::skip(!testing::can_fail_new())) {
  at_every_place([](ExactTraining&) {}, [](ExactTraining& t) { t.all(); },
                 [](ExactTraining& t, const std::vector<double>&) {
                   const std::vector<double> now = t.values();
                   t.all();
                   CHECK(t.values() == stepped(now));
                   CHECK(t.scaler.get_scale() == 64);
                 });
}

TEST_CASE("a step that failed may be called again: it is right, or refused" *
          doctest::skip(!testing::can_fail_new())) {
  at_every_place(
      [](ExactTraining& t) { t.backward(); }, [](ExactTraining& t) { t.step(); },
      [](ExactTraining& t, const std::vector<double>& before) {
        const std::vector<double> now = t.values();
        try {
          t.step();
          CHECK(now == before);
          CHECK(t.values() == stepped(before));
        } catch (const Error& e) {
          CHECK(std::string(e.what()).find("optimizer.zero_grad()") != std::string::npos);
          CHECK(t.values() == now);
        }
      });
}

TEST_CASE("a first iteration that failed anywhere leaves a scaler that works" *
          doctest::skip(!testing::can_fail_new())) {
  for (const bool host : {true, false}) {
    CAPTURE(host);
    int64_t places = 0;
    for (int64_t nth = 1;; ++nth) {
      CAPTURE(nth);
      ExactTraining t(false);
      const std::vector<double> before = t.values();
      const Failure failure = fail(host, nth, [&] { t.all(); });
      const std::vector<double> now = t.values();
      if (!failure.thrown) CHECK(now == stepped(before));
      if (!failure.reached) break;
      ++places;
      for (size_t i = 0; i < now.size(); ++i)
        CHECK((now[i] == before[i] || now[i] == stepped(before)[i]));
      t.all();
      CHECK(t.values() == stepped(now));
      CHECK(t.scaler.get_scale() == 64);
      CHECK(t.scaler.stats().skips == 0);
    }
    CHECK(places >= least_places(host));
  }
}

namespace {

/// Two weights that know nothing of each other, and steps of any optimizer.
struct AnyTraining {
  AnyTraining(const testing::OptimizerKind& kind, Dtype dtype, int steps)
      : weights{testing::leaf({3}, 1, dtype), testing::leaf({2}, 2, dtype)} {
    using Groups = testing::OptimizerKind::Groups;
    optimizer = kind.make_groups(
        kind.has_rule ? Groups{{{weights[0]}}, {{weights[1]}}} : Groups{{weights}}, {});
    auto* lbfgs = dynamic_cast<optim::LBFGSOptions*>(&optimizer->param_groups()[0].options());
    if (lbfgs) lbfgs->max_iter(2);  // by default 20 in a step
    for (int i = 0; i < steps; ++i) step();
  }
  void step() {
    optimizer->step([&] {
      optimizer->zero_grad();
      Tensor loss;
      for (const Tensor& w : weights) {
        const Tensor part = (square(w) + square(square(w))).sum();
        loss = loss.defined() ? loss + part : part;
      }
      loss.backward();
      return loss;
    });
  }
  std::vector<double> values() const {
    std::vector<double> all;
    for (const Tensor& w : weights) all.push_back(w[1].item<double>());
    return all;
  }
  std::vector<Tensor> weights;
  std::unique_ptr<optim::Optimizer> optimizer;
};

}  // namespace

TEST_CASE("a step of any optimizer that failed anywhere leaves each weight before or after it" *
          doctest::skip(!testing::can_fail_new())) {
  int64_t places = 0;
  for (const testing::OptimizerKind& kind : testing::optimizers())
    for (const Dtype dtype : {kFloat32, kFloat16})
      for (const int steps : {0, 1, 2}) {  // the first one makes the state
        CAPTURE(kind.name);
        CAPTURE(dtype);
        CAPTURE(steps);
        std::vector<std::vector<double>> at;  // after so many steps
        for (int i = 0; i < 3; ++i) at.push_back(AnyTraining(kind, dtype, steps + i).values());
        for (const bool host : {true, false})
          for (int64_t nth = 1;; ++nth, ++places) {
            CAPTURE(host);
            CAPTURE(nth);
            AnyTraining t(kind, dtype, steps);
            const Failure failure = fail(host, nth, [&] { t.step(); });
            const std::vector<double> now = t.values();
            if (!failure.thrown) CHECK(now == at[1]);
            if (!failure.reached) break;
            t.step();
            const std::vector<double> next = t.values();
            for (size_t i = 0; i < now.size(); ++i) {
              CAPTURE(i);
              const bool moved = now[i] != at[0][i];
              CHECK(now[i] == at[moved ? 1 : 0][i]);
              CHECK(next[i] == at[moved ? 2 : 1][i]);  // with the state that belongs to it
            }
          }
      }
  CHECK(places > 1000);
  MESSAGE(places, " places of steps of ", testing::optimizers().size(), " optimizers");
}
