// Flat storage: steps leave the same bits as without it, and writes through the tensor of all
// parameters reach each of them.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "halftape/autograd/tape/weight_cast.h"
#include "halftape/tests/support/flat_training.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/tracing_backend.h"

using namespace halftape;
using namespace halftape::testing;
using optim::FlatRegion;
using optim::Weights;

TEST_CASE("steps in flat storage leave the bits that steps without it leave") {
  for (const OptimizerKind& kind : rule_optimizers()) {
    CAPTURE(kind.name);
    for (const bool mixed : {false, true}) {
      CAPTURE(mixed);
      FlatTraining flat(kind, true, kFloat32, Weights::Plain, mixed),
          not_flat(kind, false, kFloat32, Weights::Plain, mixed);
      for (int t = 0; t < 8; ++t) {
        CAPTURE(t);
        flat.step(t, t + 1);
        not_flat.step(t, t + 1);
        CHECK(same(flat, not_flat));
      }
      if (mixed) CHECK(flat.scaler->state_dict() == not_flat.scaler->state_dict());
      if (mixed) CHECK(flat.scaler->get_scale() == 2048);  // 1024 → 2048 → 1024 → 2048
      CHECK(padding(flat.region(), flat.region().parameters()) == 0);
    }
  }
}

TEST_CASE("16-bit parameters are kept in flat storage as they are without it") {
  for (const OptimizerKind& kind : rule_optimizers()) {
    CAPTURE(kind.name);
    for (const Weights w : {Weights::Plain, Weights::Master, Weights::Stochastic, Weights::Kahan}) {
      CAPTURE(static_cast<int>(w));
      FlatTraining flat(kind, true, kBFloat16, w), not_flat(kind, false, kBFloat16, w);
      for (FlatTraining* t : {&flat, &not_flat}) {
        manual_seed(4);  // Stochastic draws its keys from here
        t->step(0, 6);
      }
      CHECK(same(flat, not_flat));
      const TensorList p = flat.params();
      const char* key = w == Weights::Master  ? "master"
                        : w == Weights::Kahan ? "remainder"
                                              : nullptr;
      if (!key) continue;
      const Tensor all = flat.region().state(key);
      REQUIRE(all.defined());
      CHECK(all.dtype() == (w == Weights::Master ? kFloat32 : kBFloat16));
      CHECK(in_slots(flat.region(), all, state_of(*flat.optimizer, p, key)));
    }
  }
}

TEST_CASE("parameters, moments and gradients of a region are a buffer each") {
  FlatTraining t;
  FlatRegion& region = t.region();
  const TensorList p = t.params();
  CHECK(t.optimizer->flat_regions().size() == 1);
  CHECK(region.params().size() == p.size());
  const Tensor all = region.parameters(), grads = region.gradients();
  CHECK(all.sizes() == Shape{region.numel()});
  CHECK(in_slots(region, all, p));
  for (int step = 0; step < 3; ++step) {
    t.optimizer->zero_grad();
    t.backward(step);
    CHECK(grads_in_slots(region, grads));
    t.optimizer->step();
  }
  for (const char* key : {"exp_avg", "exp_avg_sq"}) {
    CAPTURE(key);
    const Tensor moments = region.state(key);
    REQUIRE(moments.defined());
    CHECK(in_slots(region, moments, state_of(*t.optimizer, p, key)));
    CHECK(padding(region, moments) == 0);
  }
  CHECK_FALSE(region.state("step").defined());
  CHECK_FALSE(region.state("master").defined());
  CHECK(padding(region, grads) == 0);
  for (const Tensor& w : p) {
    CHECK(reinterpret_cast<uintptr_t>(address(w)) % 64 == 0);
    CHECK(w.is_leaf());
    CHECK(w.requires_grad());
    CHECK_FALSE(w.is_view());
  }
}

TEST_CASE("a write to one parameter makes nothing stale of the others, one to all does") {
  FlatTraining t;
  const TensorList p = t.params();
  const Tensor &w = p[1], &v = p[5];
  const auto loss = [&] { return (w * w).sum(); };
  const auto write = [](const Tensor& at) {
    const NoGradGuard no_grad;
    at.mul_(2);
  };
  Tensor saved = loss();
  write(v);
  CHECK_NOTHROW(saved.backward());
  saved = loss();
  write(w);
  CHECK(has(message([&] { saved.backward(); }), "was changed in place"));
  saved = loss();
  write(t.region().parameters());
  CHECK(has(message([&] { saved.backward(); }), "was changed in place"));
  // And who saved all of them notices a write to one.
  const Tensor all = t.region().parameters();
  const uint64_t version = all.version();
  write(v);
  CHECK(all.version() > version);
}

TEST_CASE("a write through the tensor of all is seen by each") {
  FlatTraining t;
  t.region().parameters().fill_(0.5);
  for (const Tensor& p : t.params()) CHECK(p.detach().equal(full(p.sizes(), 0.5)));
  t.backward();
  const Tensor all = t.region().gradients();
  const Tensor twice = t.params()[2].grad().clone() * 2;
  all.mul_(2);
  CHECK(same_bits(t.params()[2].grad(), twice));
}

TEST_CASE("autocast finds the copies after a write to all, and casts them anew") {
  testing::TracingBackend trace;
  FlatTraining t(adam_kind(), true, kFloat32, Weights::Plain, true);
  t.step(0, 2);
  const auto output = [&] {
    const amp::autocast region(get_default_device().type(), kFloat16);
    return t.net->forward(t.x).detach();
  };
  const Tensor before = output();
  {
    const NoGradGuard no_grad;
    t.region().parameters().mul_(-1);
  }
  const Tensor after = output();
  CHECK_FALSE(same_bits(before, after));
  amp::clear_autocast_cache();
  CHECK(same_bits(after, output()));
}

TEST_CASE("16-bit copies lie in one buffer, and no step casts a weight") {
  testing::TracingBackend trace;
  FlatTraining t(adam_kind(), true, kFloat32, Weights::Plain, true);
  const TensorList p = t.params();
  const auto casts = [&] {
    return std::count_if(trace.lowered.begin(), trace.lowered.end(), [&](const void* at) {
      return std::any_of(p.begin(), p.end(), [&](auto& w) { return w.const_data_ptr() == at; });
    });
  };
  t.step(0, 1);
  const auto at_first = casts();
  CHECK(at_first == 6);  // three layers
  trace.clear();
  t.step(1, 3);
  CHECK(casts() == 0);
  const char* base = nullptr;
  int copies = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const Array low = halftape::detail::find_low_copy(p[i], kFloat16);
    if (!low.defined()) continue;
    ++copies;
    const char* begin = static_cast<const char*>(low.raw()) - 2 * t.region().offsets()[i];
    CHECK((!base || begin == base));
    base = begin;
    CHECK(same_bits(Tensor(low), p[i].detach().to(kFloat16)));
  }
  CHECK(copies == 6);
  // A stale copy is made anew in its slot.
  {
    const NoGradGuard no_grad;
    p[1].mul_(0.5);
  }
  t.step(3, 4);
  const Array low = halftape::detail::find_low_copy(p[1], kFloat16);
  REQUIRE(low.defined());
  CHECK(static_cast<const char*>(low.raw()) - 2 * t.region().offsets()[1] == base);
}

TEST_CASE("flattening a trained optimizer moves its state, and steps go on") {
  for (const Weights w : {Weights::Plain, Weights::Master}) {
    const Dtype d = w == Weights::Plain ? kFloat32 : kBFloat16;
    FlatTraining t(amsgrad_kind(), false, d, w), other(amsgrad_kind(), false, d, w);
    t.step(0, 3), other.step(0, 3);
    t.optimizer->flatten();
    CHECK(same(t, other));
    for (const char* key : {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"})
      CHECK(in_slots(t.region(), t.region().state(key), state_of(*t.optimizer, t.params(), key)));
    t.step(3, 6), other.step(3, 6);
    CHECK(same(t, other));
    // Once more changes nothing.
    const Tensor before = t.region().parameters(), grads = t.region().gradients();
    t.optimizer->flatten();
    CHECK(address(t.region().parameters()) == address(before));
    CHECK(address(t.region().gradients()) == address(grads));
  }
}

TEST_CASE("a state that is loaded lies in flat storage, and goes the way of the other") {
  FlatTraining trained(amsgrad_kind(), false);
  trained.step(0, 3);
  FlatTraining fresh(amsgrad_kind()), used(amsgrad_kind());
  used.step(5, 7);
  for (FlatTraining* t : {&fresh, &used}) {
    const TensorList p = t->params(), q = trained.params();
    {
      const NoGradGuard no_grad;
      for (size_t i = 0; i < p.size(); ++i) p[i].copy_(q[i]);
    }
    t->optimizer->load_state_dict(trained.optimizer->state_dict());
    t->optimizer->zero_grad();
    for (const char* key : {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"})
      CHECK(in_slots(t->region(), t->region().state(key), state_of(*t->optimizer, p, key)));
  }
  trained.optimizer->zero_grad();
  CHECK(same(fresh, trained));
  for (FlatTraining* t : {&trained, &fresh, &used}) t->step(3, 6);
  CHECK(same(fresh, trained));
  CHECK(same(used, trained));
  // And back: what a flat optimizer saves is nothing special.
  const auto saved = fresh.optimizer->state_dict();
  FlatTraining plain(amsgrad_kind(), false);
  plain.optimizer->load_state_dict(saved);
  const TensorList p = plain.params(), q = fresh.params();
  for (size_t i = 0; i < p.size(); ++i)
    CHECK(same_bits(Tensor(plain.optimizer->state_of(p[i]).find("exp_avg")->second),
                    Tensor(fresh.optimizer->state_of(q[i]).find("exp_avg")->second)));
}

TEST_CASE("a moment that somebody holds keeps its place when a state is loaded") {
  FlatTraining t(amsgrad_kind());
  t.step(0, 2);
  const auto saved = t.optimizer->state_dict();
  auto none = saved;
  for (auto& state : none.state) state.clear();
  const Tensor p = t.params()[0];
  const auto moment = [&] { return t.optimizer->state_of(p).at("exp_avg"); };
  std::optional<Array> slot = moment();
  t.optimizer->load_state_dict(none);
  t.step(2, 3);  // with a moment elsewhere
  const Array held = moment();
  slot.reset();
  t.optimizer->load_state_dict(saved);
  CHECK(moment().raw() == held.raw());
  CHECK(Tensor(held).equal(Tensor(saved.state[0].at("exp_avg"))));
}

TEST_CASE("parameters and gradients outlive their optimizer") {
  FlatTraining t;
  t.step(0, 1);
  const TensorList p = t.params();
  const Tensor g = p[1].grad().clone();
  t.optimizer.reset();
  CHECK(same_bits(p[1].grad(), g));
  for (const Tensor& q : p) q.mutable_grad() = Tensor();
  t.backward();
  t.optimizer = adam(p);
  t.optimizer->flatten();
  t.step(1, 2);
  CHECK(grads_in_slots(t.region(), t.region().gradients()));
}

TEST_CASE("nothing of flat storage is left when all who use it are gone") {
  const auto train = [] {
    FlatTraining t(amsgrad_kind(), true, kFloat32, Weights::Plain, true);
    t.step(0, 3);
  };
  const int64_t bytes = Buffer::live_bytes(), buffers = Buffer::live_count();
  train();
  const int64_t bytes_once = Buffer::live_bytes(), buffers_once = Buffer::live_count();
  CHECK(buffers_once <= buffers + 4);  // made once, as the ones of a backward pass
  CHECK(bytes_once <= bytes + 4096);
  train();
  CHECK(Buffer::live_count() == buffers_once);
  CHECK(Buffer::live_bytes() == bytes_once);
}

TEST_CASE("norms are clipped, and averages taken, of a flat optimizer as of any other") {
  FlatTraining t, other(adam_kind(), false);
  optim::AveragedModel ema(*t.net, optim::AveragedModelOptions().decay(0.9)),
      plain(*other.net, optim::AveragedModelOptions().decay(0.9));
  for (int step = 0; step < 4; ++step) {
    for (FlatTraining* each : {&t, &other}) {
      each->optimizer->zero_grad();
      each->backward(step);
    }
    const Tensor a = nn::utils::clip_grad_norm_(t.params(), 0.1),
                 b = nn::utils::clip_grad_norm_(other.params(), 0.1);
    CHECK(same_bits(a, b));
    t.optimizer->step(), other.optimizer->step();
    CHECK(same(t, other));
    ema.update_parameters(*t.net), plain.update_parameters(*other.net);
  }
  ema.swap_in(*t.net), plain.swap_in(*other.net);
  for (size_t i = 0; i < t.params().size(); ++i)
    CHECK(same_bits(t.params()[i].detach(), other.params()[i].detach()));
}

TEST_CASE("an asynchronous optimizer of a flat one keeps its copies flat, and steps alike") {
  const auto trained = [](bool flat) {
    FlatTraining t(adam_kind(), flat);
    optim::AsyncOptimizer optimizer(std::move(t.optimizer));
    for (int step = 0; step < 6; ++step) {
      optimizer.zero_grad();
      t.backward(step);
      optimizer.step();
    }
    optimizer.synchronize();
    TensorList values;
    for (const Tensor& p : t.params()) values.push_back(p.detach().clone());
    return values;
  };
  const TensorList flat = trained(true), plain = trained(false);
  for (size_t i = 0; i < flat.size(); ++i) CHECK(same_bits(flat[i], plain[i]));
}

TEST_CASE("L-BFGS, which steps in its own way, steps alike") {
  const auto trained = [](bool flat) {
    manual_seed(6);
    nn::Linear model(4, 3);
    const Tensor x = randn({8, 4}), y = randn({8, 3});
    optim::LBFGS optimizer(model->parameters(), optim::LBFGSOptions(0.5).max_iter(4));
    if (flat) optimizer.flatten();
    for (int step = 0; step < 3; ++step) {
      optimizer.step([&] {
        optimizer.zero_grad();
        Tensor loss = nn::functional::mse_loss(model->forward(x), y);
        loss.backward();
        return loss;
      });
      if (flat) optimizer.flatten();  // leaves everything in place
    }
    return TensorList{model->weight.detach().clone(), model->bias.detach().clone()};
  };
  const TensorList flat = trained(true), plain = trained(false);
  for (size_t i = 0; i < flat.size(); ++i) CHECK(same_bits(flat[i], plain[i]));
}
