// amp::Function: torch's custom_fwd and custom_bwd.
#include <doctest/doctest.h>

#include <functional>
#include <optional>
#include <thread>

#include <halftape/halftape.h>

#include "halftape/tests/support/warnings.h"

using namespace halftape;
using amp::autocast;
using autograd::AutogradContext;
using autograd::variable_list;

namespace {

/// What a call saw: the dtypes that arrived and the state of the region.
struct Seen {
  Dtype first = kFloat64, second = kFloat64;
  bool autocast = false;
  Dtype region = kFloat64;
};
Seen now(const Tensor& a, const Tensor& b) {
  return {a.dtype(), b.dtype(), amp::is_autocast_enabled(kCPU), amp::get_autocast_dtype(kCPU)};
}

template <class Self>
struct Product {
  static inline Seen forward_saw, backward_saw;
  static Tensor forward(AutogradContext* ctx, Tensor a, Tensor b) {
    forward_saw = now(a, b);
    ctx->save_for_backward({a, b});
    return a.mm(b);
  }
  static variable_list backward(AutogradContext* ctx, variable_list g) {
    const variable_list saved = ctx->get_saved_variables();
    backward_saw = now(saved[0], saved[1]);
    return {g[0].mm(saved[1].t()), saved[0].t().mm(g[0])};
  }
};

struct AsRegion : amp::Function<AsRegion>, Product<AsRegion> {};
struct InFloat : amp::Function<InFloat>, Product<InFloat> {
  static constexpr Dtype cast_inputs = kFloat32;
};

}  // namespace

TEST_CASE("backward of an amp::Function runs in the region of its forward") {
  const Tensor a = randn({4, 4}, requires_grad()), b = randn({4, 4}, requires_grad());
  for (const Dtype lower : {kFloat16, kBFloat16}) {
    Tensor loss;
    {
      const autocast region(kCPU, lower);
      const Tensor y = AsRegion::apply(a, b);
      CHECK(y.dtype() == lower);
      loss = y.sum();
    }
    for (const bool elsewhere : {false, true}) {
      AsRegion::backward_saw = {};
      TensorList grads;
      auto run = [&] { grads = autograd::grad({loss}, {a, b}, {}, true); };
      if (elsewhere)
        std::thread(run).join();
      else
        run();
      CHECK(AsRegion::forward_saw.first == kFloat32);
      CHECK(AsRegion::forward_saw.autocast);
      CHECK(AsRegion::backward_saw.autocast);
      CHECK(AsRegion::backward_saw.region == lower);
      CHECK(grads[0].dtype() == kFloat32);
      // ones · bᵀ, as the region rounds it.
      CHECK(grads[0].equal(ones({4, 4}, lower).mm(b.to(lower).t()).to(kFloat32)));
    }
    CHECK_FALSE(amp::is_autocast_enabled(kCPU));
  }
}

namespace {
struct InHole : amp::Function<InHole> {
  static inline Dtype saw = kFloat32;
  static Tensor forward(autograd::AutogradContext*, const Tensor& x) { return x.clone(); }
  static autograd::variable_list backward(autograd::AutogradContext*, autograd::variable_list g) {
    const autocast off(kCPU, {}, false);
    const autocast on(kCPU);
    saw = g[0].mm(g[0]).dtype();
    return g;
  }
};
}  // namespace

TEST_CASE("a region within a hole of a custom function's backward has the dtype of forward") {
  for (const bool hole : {false, true}) {
    Tensor loss;
    {
      const autocast region(kCPU, kFloat16);
      const autocast maybe(kCPU, {}, !hole);
      loss = InHole::apply(randn({4, 4}, requires_grad())).sum();
    }
    loss.backward();
    CHECK(InHole::saw == kFloat16);
  }
}

TEST_CASE("cast_inputs: inside a region both directions see that dtype and no autocast") {
  const Tensor a = randn({4, 4}, TensorOptions(kFloat16).requires_grad(true));
  const Tensor b = randn({4, 4}, requires_grad());
  Tensor y;
  {
    const autocast region(kCPU, kFloat16);
    y = InFloat::apply(a, b);
    CHECK(amp::is_autocast_enabled(kCPU));
    CHECK(y.dtype() == kFloat32);
    CHECK(InFloat::forward_saw.first == kFloat32);
    CHECK_FALSE(InFloat::forward_saw.autocast);
    y.sum().backward();  // inside: still off
  }
  CHECK(InFloat::backward_saw.first == kFloat32);
  CHECK_FALSE(InFloat::backward_saw.autocast);
  CHECK(a.grad().dtype() == kFloat16);
  CHECK(b.grad().dtype() == kFloat32);
  CHECK(b.grad().equal(a.detach().to(kFloat32).t().mm(ones({4, 4}))));
}

TEST_CASE("cast_inputs: outside a region nothing happens") {
  const Tensor h = randn({4, 4}, kFloat16);
  CHECK(InFloat::apply(h, h).dtype() == kFloat16);
  CHECK(InFloat::forward_saw.first == kFloat16);
  const autocast hole(kCPU, {}, false);
  CHECK(InFloat::apply(h, h).dtype() == kFloat16);
}

TEST_CASE("a cast of cast_inputs is differentiable: second derivatives pass through it") {
  const Tensor a = rand({2, 2}, requires_grad()), b = rand({2, 2}, requires_grad());
  Tensor y;
  {
    const autocast region(kCPU, kFloat16);
    y = InFloat::apply(a, b).sum();
  }
  const Tensor g = autograd::grad({y}, {a}, {}, true, true)[0];
  CHECK(autograd::grad({g.sum()}, {b})[0].equal(full({2, 2}, 2.0)));
}

namespace {
struct Containers : amp::Function<Containers> {
  static constexpr Dtype cast_inputs = kFloat32;
  static constexpr const char* name = "containers";
  static variable_list forward(AutogradContext*, const variable_list& list,
                               const std::map<std::string, Tensor>& map,
                               const std::vector<variable_list>& nested,
                               const std::optional<Tensor>& maybe, const Tensor& nothing,
                               const std::string& text, int64_t number) {
    for (const Tensor& t : list) CHECK(t.dtype() == (t.dim() == 2 ? kFloat32 : kFloat64));
    CHECK(map.at("a").dtype() == kFloat32);
    CHECK(nested.at(1).at(0).dtype() == kFloat32);
    CHECK(maybe->dtype() == kInt64);
    CHECK_FALSE(nothing.defined());
    CHECK(text == "as it is");
    CHECK(number == 3);
    return {list[0] * 2, list[1] * 3};
  }
  static variable_list backward(AutogradContext*, variable_list g) {
    return {g[0] * 2, g[1] * 3, {}, {}, {}, {}, {}, {}};
  }
};
}  // namespace

TEST_CASE("cast_inputs reaches into lists, maps and optionals; doubles and integers stay") {
  const Tensor h = ones({2, 2}, TensorOptions(kFloat16).requires_grad(true));
  const Tensor d = ones({2}, TensorOptions(kFloat64).requires_grad(true));
  const autocast region(kCPU, kFloat16);
  const variable_list y = Containers::apply(
      variable_list{h, d}, std::map<std::string, Tensor>{{"a", h.detach()}},
      std::vector<variable_list>{{}, {h.detach()}}, std::optional<Tensor>(ones({1}, kInt64)),
      Tensor(), std::string("as it is"), int64_t{3});
  CHECK(std::string(y[0].grad_fn()->name()) == "containers");
  CHECK(y[0].dtype() == kFloat32);
  (y[0].sum() + y[1].sum()).backward();
  CHECK(h.grad().equal(full({2, 2}, 2.0, kFloat16)));
  CHECK(d.grad().equal(full({2}, 3.0, kFloat64)));
}

TEST_CASE("a custom function's region ends with its backward, also on an exception") {
  struct Throws : amp::Function<Throws> {
    static Tensor forward(AutogradContext*, Tensor x) { return x.clone(); }
    static variable_list backward(AutogradContext*, variable_list) {
      HALFTAPE_CHECK(!amp::is_autocast_enabled(kCPU), "inside");
      return {};
    }
  };
  Tensor y;
  {
    const autocast region(kCPU, kFloat16);
    y = Throws::apply(ones({1}, requires_grad()));
  }
  CHECK_THROWS_WITH_AS(y.backward(), doctest::Contains("inside"), Error);
  CHECK_FALSE(amp::is_autocast_enabled(kCPU));
}

namespace {
/// backward() calls `what`, then notes in which dtype a product is computed.
struct CallsInRule : amp::Function<CallsInRule> {
  static inline std::function<void()> what;
  static inline Dtype then = kFloat64;
  static Tensor forward(AutogradContext*, const Tensor& x) { return x.clone(); }
  static variable_list backward(AutogradContext*, variable_list g) {
    what();
    then = g[0].mm(g[0]).dtype();
    return g;
  }
};

/// Within a region, runs `what` where its autocast state is carried to: first in the rule of a
/// custom function, then in the second run of a checkpoint.
void for_carried_states(const std::function<void()>& what,
                        const std::function<void(const Tensor& loss)>& use) {
  CallsInRule::what = what;
  use(CallsInRule::apply(randn({4, 4}, requires_grad())).sum());
  int runs = 0;
  const auto f = [&](const TensorList& x) {
    if (++runs == 2) what();
    return TensorList{tanh(x[0])};
  };
  use(autograd::checkpoint(f, {randn({4, 4}, requires_grad())})[0].sum());
}

int64_t ops_in(const amp::CastPlan& plan) {
  int64_t all = 0;
  for (const amp::CastPlan::Step& step : plan.steps) all += step.count;
  return all;
}
Dtype dtype_of_product() { return matmul(ones({2, 2}), ones({2, 2})).dtype(); }
}  // namespace

TEST_CASE("a region that outlives the rule in which it began changes nothing any more") {
  testing::Warnings warnings;
  std::optional<autocast> kept;
  const auto begin = [&] { kept.emplace(kCPU, kBFloat16); };
  for (const bool within_another : {false, true}) {
    std::optional<autocast> region(std::in_place, kCPU, kFloat16);
    for_carried_states(begin, [&](const Tensor& loss) {
      loss.backward();
      CHECK(dtype_of_product() == kFloat16);
      const autocast inner(kCPU, kBFloat16);
      if (within_another) kept.reset();
      CHECK(dtype_of_product() == kBFloat16);
    });
    region.reset();
    CHECK_FALSE(dtype_policy());
    CHECK(dtype_of_product() == kFloat32);
    kept.reset();
    CHECK_FALSE(dtype_policy());
    CHECK_FALSE(amp::is_autocast_enabled(kCPU));
    CHECK(amp::get_autocast_dtype(kCPU) == kBFloat16);
  }
  CHECK(warnings.seen.empty());
}

TEST_CASE("a rule stays in its region when one that began outside ends in it") {
  std::optional<autocast> region(std::in_place, kCPU, kFloat16);
  CallsInRule::what = [&] { region.reset(); };
  CallsInRule::apply(randn({4, 4}, requires_grad())).sum().backward();
  CHECK(CallsInRule::then == kFloat16);
  CHECK(dtype_of_product() == kFloat32);
}

TEST_CASE("a region that begins or ends in a hook changes no region around the pass") {
  std::optional<autocast> inner;
  Dtype in_hook = kFloat64;
  const Tensor w = ones({2, 2}, requires_grad());
  w.register_hook([&](const Tensor&) {
    if (inner)
      inner.reset();
    else
      inner.emplace(kCPU, kBFloat16);
    in_hook = dtype_of_product();
  });
  const autocast region(kCPU, kFloat16);
  w.sum().backward();
  CHECK(in_hook == kBFloat16);
  CHECK(dtype_of_product() == kBFloat16);
  inner.reset();
  CHECK(dtype_of_product() == kFloat16);
  inner.emplace(kCPU, kBFloat16);
  w.sum().backward();
  CHECK(in_hook == kFloat32);  // autocast is off in backward
  CHECK(dtype_of_product() == kFloat16);
}

TEST_CASE("a CastRecorder that outlives its rule or ends in one records nothing any more") {
  amp::CastPlan in_rule, outside;
  std::optional<amp::CastRecorder> kept;
  const autocast region(kCPU, kFloat16);
  for_carried_states([&] { kept.emplace(in_rule); },
                     [&](const Tensor& loss) {
                       std::optional<amp::CastRecorder> own(std::in_place, outside);
                       loss.backward();
                       own.reset();
                       const int64_t seen = ops_in(outside);
                       CHECK(dtype_of_product() == kFloat16);
                       CHECK(ops_in(outside) == seen);
                       kept.reset();
                     });
  std::optional<amp::CastRecorder> own(std::in_place, outside);
  for_carried_states([&] { own.reset(); },
                     [&](const Tensor& loss) {
                       loss.backward();
                       const int64_t seen = ops_in(outside);
                       CHECK(dtype_of_product() == kFloat16);
                       CHECK(ops_in(outside) == seen);
                       own.emplace(outside);
                     });
}

TEST_CASE("a rule that writes into the gradient of a scaled loss leaves the scale alone") {
  struct Doubles : autograd::Function<Doubles> {
    static Tensor forward(AutogradContext*, const Tensor& x) { return x.clone(); }
    static variable_list backward(AutogradContext*, variable_list g) { return {g[0].mul_(2)}; }
  };
  amp::GradScaler scaler({.init_scale = 8});
  const Tensor w = ones({}, requires_grad());
  optim::SGD optimizer({w}, optim::SGDOptions(1));
  scaler.scale(w * 1).backward();
  scaler.step(optimizer);
  scaler.update();
  optimizer.zero_grad();
  (void)scaler.factor();
  scaler.scale(Doubles::apply(w)).backward();
  CHECK(scaler.get_scale() == 8);
  CHECK(w.grad().item() == 16);
}
