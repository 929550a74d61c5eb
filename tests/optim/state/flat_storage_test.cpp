// Flat storage: the bits of steps without it, gradients made where they belong, and what is read or
// written through one tensor for all.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "halftape/autograd/tape/weight_cast.h"
#include "halftape/tests/support/close.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/tracing_backend.h"

using namespace halftape;
using optim::FlatRegion;
using optim::Weights;
using testing::has;
using testing::message;
using testing::same_bits;

namespace {

using Make = std::function<std::unique_ptr<optim::Optimizer>(const TensorList&, Weights)>;
struct Kind {
  std::string name;
  Make make;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> list = {
      {"SGD",
       [](const TensorList& p, Weights w) {
         return std::make_unique<optim::SGD>(p, optim::SGDOptions(0.05).weights(w));
       }},
      {"SGD with momentum",
       [](const TensorList& p, Weights w) {
         const auto o = optim::SGDOptions(0.05).momentum(0.9).weight_decay(0.01).weights(w);
         return std::make_unique<optim::SGD>(p, o);
       }},
      {"Adam",
       [](const TensorList& p, Weights w) {
         return std::make_unique<optim::Adam>(p, optim::AdamOptions(0.01).weights(w));
       }},
      {"AdamW with amsgrad",
       [](const TensorList& p, Weights w) {
         optim::AdamWOptions o(0.01);
         o.amsgrad(true).weights(w);
         return std::make_unique<optim::AdamW>(p, o);
       }},
      {"RMSprop, centered, with momentum",
       [](const TensorList& p, Weights w) {
         const auto o = optim::RMSpropOptions(0.002).momentum(0.5).centered(true).weights(w);
         return std::make_unique<optim::RMSprop>(p, o);
       }},
      {"Adagrad",
       [](const TensorList& p, Weights w) {
         auto o = optim::AdagradOptions(0.02).initial_accumulator_value(0.1).weights(w);
         return std::make_unique<optim::Adagrad>(p, o);
       }},
      {"Lion", [](const TensorList& p, Weights w) {
         const auto o = optim::LionOptions(0.01).weight_decay(0.1).weights(w);
         return std::make_unique<optim::Lion>(p, o);
       }}};
  return list;
}
std::unique_ptr<optim::Optimizer> adam(const TensorList& p) {
  return kinds()[2].make(p, Weights::Plain);
}

DeviceType device() { return get_default_device().type(); }

/// A classifier of words: an embedding, two layers as one chain, a norm, a layer.
struct Net : nn::Module {
  nn::Embedding words{nullptr};
  nn::Sequential chain{nullptr};
  nn::LayerNorm norm{nullptr};
  nn::Linear last{nullptr};
  Net() {
    words = register_module("words", nn::Embedding(11, 7));
    chain =
        register_module("chain", nn::Sequential(nn::Linear(7, 33), nn::ReLU(), nn::Linear(33, 19)));
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({19})));
    last = register_module("last", nn::Linear(19, 5));
  }
  Tensor forward(const Tensor& index) { return last(norm(chain->forward(words(index)))); }
};

struct Training {
  std::shared_ptr<Net> net;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<amp::GradScaler> scaler;  // with it, under autocast
  Tensor x = arange(24) % 11, y = arange(24) * 3 % 5;

  explicit Training(const Make& make = kinds()[2].make, bool flat = true, Dtype d = kFloat32,
                    Weights weights = Weights::Plain, bool mixed = false) {
    manual_seed(17);
    net = std::make_shared<Net>();
    if (d != kFloat32) net->to(d);
    optimizer = make(net->parameters(), weights);
    if (flat) optimizer->flatten();
    if (mixed)
      scaler = std::make_unique<amp::GradScaler>(
          amp::GradScalerOptions{.init_scale = 1024, .growth_interval = 3});
  }
  void backward(int t = 0) {
    Tensor loss;
    {
      const amp::autocast region(device(), kFloat16, scaler != nullptr);
      loss = nn::functional::cross_entropy(net->forward((x + t) % 11), y);
    }
    if (scaler)
      scaler->scale(t == 3 ? loss * 1e6 : loss).backward();  // more than gradients in float16 hold
    else
      loss.backward();
  }
  void step(int from, int to) {
    for (int t = from; t < to; ++t) {
      optimizer->zero_grad();
      backward(t);
      if (scaler)
        scaler->step(*optimizer), scaler->update();
      else
        optimizer->step();
    }
  }
  FlatRegion& region() { return optimizer->flat_regions().at(0); }
  TensorList params() const { return net->parameters(); }
};

/// The same parameters, and the same state under the same keys?
bool same(const Training& a, const Training& b) {
  const TensorList p = a.params(), q = b.params();
  bool all = p.size() == q.size();
  for (size_t i = 0; all && i < p.size(); ++i) {
    all = same_bits(p[i].detach(), q[i].detach()) &&
          p[i].grad().defined() == q[i].grad().defined() &&
          (!p[i].grad().defined() || same_bits(p[i].grad(), q[i].grad()));
    const auto &s = a.optimizer->state_of(p[i]), &t = b.optimizer->state_of(q[i]);
    all = all && s.size() == t.size();
    for (const auto& [key, value] : s)
      all = all && t.count(key) && same_bits(Tensor(value), Tensor(t.find(key)->second));
  }
  return all;
}

const char* address(const Tensor& t) { return static_cast<const char*>(t.const_data_ptr()); }

/// Does each of these lie where it belongs in `all`? Undefined ones do.
bool in_place(const FlatRegion& region, const Tensor& all, const TensorList& parts) {
  bool yes = parts.size() == region.offsets().size();
  for (size_t i = 0; yes && i < parts.size(); ++i)
    yes = !parts[i].defined() ||
          address(parts[i]) ==
              address(all) + region.offsets()[i] * static_cast<int64_t>(all.element_size());
  return yes;
}
TensorList grads_of(const TensorList& params) {
  TensorList grads;
  for (const Tensor& p : params) grads.push_back(p.grad());
  return grads;
}
/// Are the gradients where a backward pass made them, at their places?
bool grads_in_place(FlatRegion& region, const Tensor& all) {
  return in_place(region, all, grads_of(region.params()));
}
TensorList state_of(const optim::Optimizer& optimizer, const TensorList& params, const char* key) {
  TensorList state;
  for (const Tensor& p : params) {
    const auto& all = optimizer.state_of(p);
    state.push_back(all.count(key) ? Tensor(all.find(key)->second) : Tensor());
  }
  return state;
}
/// What lies between the parts.
double padding(const FlatRegion& region, const Tensor& all) {
  double sum = 0;
  const std::vector<double> values = all.to_vector();
  for (size_t i = 0; i < region.params().size(); ++i) {
    const auto from = region.offsets()[i] + region.params()[i].numel(),
               to = i + 1 < region.params().size() ? region.offsets()[i + 1] : region.numel();
    for (int64_t k = from; k < to; ++k) sum += std::abs(values[static_cast<size_t>(k)]);
  }
  return sum;
}

}  // namespace

TEST_CASE("steps in flat storage leave the bits that steps without it leave") {
  for (const Kind& kind : kinds()) {
    CAPTURE(kind.name);
    for (const bool mixed : {false, true}) {
      CAPTURE(mixed);
      Training flat(kind.make, true, kFloat32, Weights::Plain, mixed),
          not_flat(kind.make, false, kFloat32, Weights::Plain, mixed);
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
  for (const Kind& kind : kinds()) {
    CAPTURE(kind.name);
    for (const Weights w : {Weights::Plain, Weights::Master, Weights::Stochastic, Weights::Kahan}) {
      CAPTURE(static_cast<int>(w));
      Training flat(kind.make, true, kBFloat16, w), not_flat(kind.make, false, kBFloat16, w);
      for (Training* t : {&flat, &not_flat}) {
        manual_seed(4);  // of which the keys are drawn that Stochastic rounds by
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
      CHECK(in_place(flat.region(), all, state_of(*flat.optimizer, p, key)));
    }
  }
}

TEST_CASE("parameters, moments and gradients of a region are a buffer each") {
  Training t;
  FlatRegion& region = t.region();
  const TensorList p = t.params();
  CHECK(t.optimizer->flat_regions().size() == 1);
  CHECK(region.params().size() == p.size());
  const Tensor all = region.parameters(), grads = region.gradients();
  CHECK(all.sizes() == Shape{region.numel()});
  CHECK(in_place(region, all, p));
  for (int step = 0; step < 3; ++step) {
    t.optimizer->zero_grad();
    t.backward(step);
    CHECK(grads_in_place(region, grads));
    t.optimizer->step();
  }
  for (const char* key : {"exp_avg", "exp_avg_sq"}) {
    CAPTURE(key);
    const Tensor moments = region.state(key);
    REQUIRE(moments.defined());
    CHECK(in_place(region, moments, state_of(*t.optimizer, p, key)));
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

TEST_CASE("the layers' rules make gradients at their places, and copy none") {
  manual_seed(3);
  const Tensor x = randn({6, 8}), images = randn({2, 3, 6, 6});
  // Each: leaves, and a loss of them.
  struct Case {
    std::string name;
    TensorList leaves;
    std::function<Tensor(const TensorList&)> loss;
    bool lowered = true;  // run it under autocast, too
  };
  const auto leaf = [](const Shape& s) { return randn(s).set_requires_grad(true); };
  namespace F = nn::functional;
  const std::vector<Case> cases = {
      {"linear", {leaf({5, 8}), leaf({5})}, [&](auto& p) { return linear(x, p[0], p[1]).sum(); }},
      {"linear, no bias", {leaf({5, 8})}, [&](auto& p) { return linear(x, p[0], {}).sum(); }},
      {"linear with gelu",
       {leaf({8, 8}), leaf({8})},
       [&](auto& p) { return linear(x, p[0], p[1], Activation::Gelu).sum(); }},
      {"mlp",
       {leaf({16, 8}), leaf({16}), leaf({5, 16}), leaf({5})},
       [&](auto& p) {
         return mlp(x, {p[0], p[2]}, {p[1], p[3]}, Activation::Relu).sum();
       }},
      {"mlp_loss",
       {leaf({16, 8}), leaf({16}), leaf({5, 16}), leaf({5})},
       [&](auto& p) {
         return mlp_loss(x, zeros({6, 5}), {p[0], p[2]}, {p[1], p[3]}, Activation::Relu);
       }},
      {"mlp_loss with a scale",
       {leaf({16, 8}), leaf({16}), leaf({5, 16}), leaf({5})},
       [&](auto& p) {
         return mlp_loss(x, zeros({6, 5}), {p[0], p[2]}, {p[1], p[3]}, Activation::Relu, ones({}));
       }},
      {"matmul and bias",
       {leaf({8, 5}), leaf({5})},
       [&](auto& p) { return (matmul(x, p[0]) + p[1]).sum(); }},
      {"addmm", {leaf({8, 5}), leaf({5})}, [&](auto& p) { return addmm(p[1], x, p[0]).sum(); }},
      {"embedding", {leaf({9, 4})}, [&](auto& p) { return embedding(p[0], arange(6) % 9).sum(); }},
      {"layer_norm",
       {leaf({8}), leaf({8})},
       [&](auto& p) { return layer_norm(x, {8}, p[0], p[1]).sum(); }},
      {"rms_norm", {leaf({8})}, [&](auto& p) { return rms_norm(x, {8}, p[0]).sum(); }},
      {"batch_norm",
       {leaf({3}), leaf({3})},
       [&](auto& p) { return batch_norm(images, {}, {}, p[0], p[1], true, 0.1, 1e-5).sum(); }},
      {"conv2d",
       {leaf({4, 3, 3, 3}), leaf({4})},
       [&](auto& p) { return conv2d(images, p[0], p[1]).sum(); }},
      {"conv_transpose2d",
       {leaf({3, 4, 3, 3}), leaf({4})},
       [&](auto& p) { return conv_transpose2d(images, p[0], p[1]).sum(); }},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    for (const bool lowered : {false, true}) {
      CAPTURE(lowered);
      const auto run = [&](const TensorList& p) {
        Tensor loss;
        {
          const amp::autocast region(device(), kBFloat16, lowered);
          loss = c.loss(p);
        }
        loss.backward();
      };
      TensorList flat, plain;
      for (const Tensor& l : c.leaves) {
        flat.push_back(l.detach().clone().set_requires_grad(true));
        plain.push_back(l.detach().clone().set_requires_grad(true));
      }
      const auto optimizer = adam(flat);
      FlatRegion& region = optimizer->flatten()[0];
      const Tensor all = region.gradients();
      run(flat);
      run(plain);
      CHECK(grads_in_place(region, all));
      for (size_t i = 0; i < flat.size(); ++i) CHECK(same_bits(flat[i].grad(), plain[i].grad()));
      CHECK(padding(region, all) == 0);
    }
  }
}

TEST_CASE("gradients lie at their places in a chain under autocast, with a scaler") {
  Training t(kinds()[2].make, true, kFloat32, Weights::Plain, true);
  const Tensor all = t.region().gradients();
  for (int step = 0; step < 6; ++step) {
    t.step(step, step + 1);
    CHECK(grads_in_place(t.region(), all));
    CHECK(address(t.region().gradients()) == address(all));
  }
}

TEST_CASE("the fused loss of a Sequential makes its gradients in place") {
  manual_seed(1);
  nn::Sequential model(nn::Linear(8, 16), nn::ReLU(), nn::Linear(16, 5));
  const auto optimizer = adam(model->parameters());
  FlatRegion& region = optimizer->flatten()[0];
  amp::GradScaler scaler({.init_scale = 256});
  const Tensor x = randn({12, 8}), y = arange(12) % 5, all = region.gradients();
  for (int t = 0; t < 3; ++t) {
    optimizer->zero_grad();
    Tensor loss;
    {
      const amp::autocast lower(device(), kFloat16);
      loss = model->loss(x, y, scaler.factor());
    }
    scaler.scale(loss).backward();
    CHECK(grads_in_place(region, all));
    CHECK(scaler.step(*optimizer).applied());
    scaler.update();
  }
}

TEST_CASE("a write to one parameter makes nothing stale of the others, one to all does") {
  Training t;
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
  Training t;
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
  Training t(kinds()[2].make, true, kFloat32, Weights::Plain, true);
  t.step(0, 2);
  const auto output = [&] {
    const amp::autocast region(device(), kFloat16);
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
  Training t(kinds()[2].make, true, kFloat32, Weights::Plain, true);
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
    const Array low = detail::find_low_copy(p[i], kFloat16);
    if (!low.defined()) continue;
    ++copies;
    const char* begin = static_cast<const char*>(low.raw()) - 2 * t.region().offsets()[i];
    CHECK((!base || begin == base));
    base = begin;
    CHECK(same_bits(Tensor(low), p[i].detach().to(kFloat16)));
  }
  CHECK(copies == 6);
  // A stale copy is made anew in its place.
  {
    const NoGradGuard no_grad;
    p[1].mul_(0.5);
  }
  t.step(3, 4);
  const Array low = detail::find_low_copy(p[1], kFloat16);
  REQUIRE(low.defined());
  CHECK(static_cast<const char*>(low.raw()) - 2 * t.region().offsets()[1] == base);
}

TEST_CASE("the mean of two replicas' gradients is the gradient of both batches") {
  manual_seed(5);
  const Tensor x = randn({16, 8}), y = randn({16, 3});
  const auto replica = [] {
    manual_seed(9);
    return nn::Sequential(nn::Linear(8, 12), nn::Tanh(), nn::Linear(12, 3));
  };
  const auto loss = [&](nn::Sequential& model, int64_t from, int64_t to) {
    return nn::functional::mse_loss(model->forward(x.slice(0, from, to)), y.slice(0, from, to));
  };
  nn::Sequential a = replica(), b = replica(), whole = replica();
  const auto oa = adam(a->parameters()), ob = adam(b->parameters()), ow = adam(whole->parameters());
  FlatRegion &ra = oa->flatten()[0], &rb = ob->flatten()[0];
  ow->flatten();
  for (int step = 0; step < 5; ++step) {
    for (auto* o : {&oa, &ob, &ow}) (*o)->zero_grad();
    loss(a, 0, 8).backward();
    loss(b, 8, 16).backward();
    loss(whole, 0, 16).backward();
    const Tensor ga = ra.gradients(), gb = rb.gradients();
    ga.add_(gb).mul_(0.5);
    gb.copy_(ga);
    for (auto* o : {&oa, &ob, &ow}) (*o)->step();
    CHECK(same_bits(ra.parameters(), rb.parameters()));
  }
  const TensorList p = a->parameters(), q = whole->parameters();
  for (size_t i = 0; i < p.size(); ++i) CHECK(p[i].detach().allclose(q[i].detach(), 1e-4, 1e-6));
}

TEST_CASE("gradients that lie elsewhere are brought into place, with their marks") {
  Training t(kinds()[2].make, true, kFloat32, Weights::Plain, true);
  t.backward();
  const TensorList p = t.params();
  const Tensor all = t.region().gradients();
  const Tensor moved = p[1].grad().clone(), changed = p[2].grad().clone();
  {
    // As a rule that knows nothing of places leaves them.
    const GradMark mark = mark_of(p[1].grad());
    REQUIRE(mark.known);
    p[1].mutable_grad() = moved;
    set_mark(p[1].grad(), mark.tag);
  }
  p[2].mutable_grad() = changed;
  CHECK_FALSE(grads_in_place(t.region(), all));
  CHECK(address(t.region().gradients()) == address(all));
  CHECK(grads_in_place(t.region(), all));
  CHECK(same_bits(p[1].grad(), moved));
  CHECK(same_bits(p[2].grad(), changed));
  CHECK(mark_of(p[1].grad()).known);
  CHECK(mark_of(p[1].grad()).tag);
  CHECK_FALSE(mark_of(p[2].grad()).known);      // assigned by hand
  CHECK_THROWS_AS(t.optimizer->step(), Error);  // it is still scaled
  CHECK(t.scaler->step(*t.optimizer).applied());
}

TEST_CASE("parameters without a gradient have zeros there, and remain without") {
  Training t;
  t.step(0, 1);
  t.optimizer->zero_grad();
  const TensorList p = t.params();
  (p[1] * p[1]).sum().backward();
  const Tensor all = t.region().gradients();
  CHECK(all.abs().sum().item<double>() ==
        doctest::Approx(p[1].grad().abs().sum().item<double>()).epsilon(1e-5));
  for (size_t i = 0; i < p.size(); ++i) CHECK(p[i].grad().defined() == (i == 1));
  CHECK(grads_in_place(t.region(), all));
}

TEST_CASE("an earlier gradient that somebody holds stays as it is") {
  Training t, other(kinds()[2].make, false);
  t.backward();
  const Tensor held = t.params()[1].grad(), copy = held.clone();
  const Tensor all = t.region().gradients();
  t.optimizer->zero_grad();
  t.backward(1);
  other.backward(1);
  CHECK(same_bits(held, copy));
  CHECK_FALSE(grads_in_place(t.region(), all));
  CHECK(same(t, other));
  const Tensor now = t.region().gradients();
  CHECK(address(now) != address(all));  // a new buffer
  CHECK(grads_in_place(t.region(), now));
  now.mul_(3);
  CHECK(same_bits(held, copy));
  CHECK(same_bits(t.params()[1].grad(), other.params()[1].grad() * 3));
  t.optimizer->zero_grad(false);
  CHECK(same_bits(held, copy));
  t.optimizer->zero_grad();
  t.backward();
  CHECK(grads_in_place(t.region(), now));  // the backward pass knows the new one
}

TEST_CASE("accumulated gradients are added at their places") {
  Training t, other(kinds()[2].make, false);
  const Tensor all = t.region().gradients();
  for (int step = 0; step < 3; ++step) {
    for (Training* each : {&t, &other}) {
      each->optimizer->zero_grad();
      for (int micro = 0; micro < 3; ++micro) each->backward(3 * step + micro);
      each->optimizer->step();
    }
    CHECK(grads_in_place(t.region(), all));
    CHECK(same(t, other));
  }
}

TEST_CASE("a weight that is used twice has the sum of both gradients in its place") {
  for (const bool lowered : {false, true}) {
    CAPTURE(lowered);
    manual_seed(2);
    const Tensor x = randn({6, 8});
    const auto run = [&](const Tensor& w) {
      Tensor loss;
      {
        const amp::autocast region(device(), kBFloat16, lowered);
        loss = linear(linear(x, w, {}), w, {}).sum() + embedding(w, arange(3)).sum();
      }
      loss.backward();
    };
    const Tensor tied = randn({8, 8}).set_requires_grad(true),
                 plain = tied.detach().clone().set_requires_grad(true);
    const auto optimizer = adam({tied});
    FlatRegion& region = optimizer->flatten()[0];
    const Tensor all = region.gradients();
    for (int step = 0; step < 2; ++step) {
      run(tied), run(plain);
      CHECK(same_bits(tied.grad(), plain.grad()));
      CHECK(address(tied.grad()) == address(all));
      CHECK(address(region.gradients()) == address(all));
      CHECK(same_bits(all.slice(0, 0, 64).view({8, 8}), plain.grad()));
    }
  }
}

TEST_CASE("frozen parameters lie among the others, and stay as they are") {
  Training t, other(kinds()[2].make, false);
  for (Training* each : {&t, &other}) {
    for (const Tensor& p : each->net->chain->parameters()) p.requires_grad_(false);
    each->step(0, 3);
  }
  CHECK(same(t, other));
  // Thawed, they begin another end of the tape, and find their places from the second step on.
  for (Training* each : {&t, &other}) {
    for (const Tensor& p : each->net->chain->parameters()) p.requires_grad_(true);
    each->step(3, 5);
  }
  CHECK(same(t, other));
  CHECK(grads_in_place(t.region(), t.region().gradients()));
  const Tensor all = t.region().gradients();
  t.step(5, 6);
  CHECK(grads_in_place(t.region(), all));
}

TEST_CASE("zero_grad(false) is one fill where everything is in place") {
  Training t, other(kinds()[2].make, false);
  const TensorList p = t.params();
  t.backward(), other.backward();
  {
    testing::TracingBackend trace;
    t.optimizer->zero_grad(false);
    CHECK(std::count(trace.calls.begin(), trace.calls.end(), "fill") == 1);
    trace.clear();
    other.optimizer->zero_grad(false);
    CHECK(std::count(trace.calls.begin(), trace.calls.end(), "fill") ==
          static_cast<std::ptrdiff_t>(p.size()));
  }
  CHECK(same(t, other));
  t.step(0, 2), other.step(0, 2);
  CHECK(same(t, other));
  // One that is elsewhere is zeroed there.
  p[0].mutable_grad() = p[0].grad().clone();
  p[3].mutable_grad() = Tensor();
  t.optimizer->zero_grad(false);
  for (const Tensor& q : p) CHECK((!q.grad().defined() || q.grad().equal(zeros(q.sizes()))));
  CHECK_FALSE(p[3].grad().defined());
  t.optimizer->zero_grad(true);
  for (const Tensor& q : p) CHECK_FALSE(q.grad().defined());
}

TEST_CASE("what is there when a trained optimizer is flattened moves, and steps go on") {
  for (const Weights w : {Weights::Plain, Weights::Master}) {
    const Dtype d = w == Weights::Plain ? kFloat32 : kBFloat16;
    Training t(kinds()[3].make, false, d, w), other(kinds()[3].make, false, d, w);
    t.step(0, 3), other.step(0, 3);
    t.optimizer->flatten();
    CHECK(same(t, other));
    for (const char* key : {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"})
      CHECK(in_place(t.region(), t.region().state(key), state_of(*t.optimizer, t.params(), key)));
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
  Training trained(kinds()[3].make, false);
  trained.step(0, 3);
  Training fresh(kinds()[3].make), used(kinds()[3].make);
  used.step(5, 7);
  for (Training* t : {&fresh, &used}) {
    const TensorList p = t->params(), q = trained.params();
    {
      const NoGradGuard no_grad;
      for (size_t i = 0; i < p.size(); ++i) p[i].copy_(q[i]);
    }
    t->optimizer->load_state_dict(trained.optimizer->state_dict());
    t->optimizer->zero_grad();
    for (const char* key : {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"})
      CHECK(in_place(t->region(), t->region().state(key), state_of(*t->optimizer, p, key)));
  }
  trained.optimizer->zero_grad();
  CHECK(same(fresh, trained));
  for (Training* t : {&trained, &fresh, &used}) t->step(3, 6);
  CHECK(same(fresh, trained));
  CHECK(same(used, trained));
  // And back: what a flat optimizer saves is nothing special.
  const auto saved = fresh.optimizer->state_dict();
  Training plain(kinds()[3].make, false);
  plain.optimizer->load_state_dict(saved);
  const TensorList p = plain.params(), q = fresh.params();
  for (size_t i = 0; i < p.size(); ++i)
    CHECK(same_bits(Tensor(plain.optimizer->state_of(p[i]).find("exp_avg")->second),
                    Tensor(fresh.optimizer->state_of(q[i]).find("exp_avg")->second)));
}

TEST_CASE("regions are by group, dtype and device, and a group that is added waits for flatten()") {
  const auto leaf = [](Dtype d) { return ones({3}, TensorOptions(d).requires_grad(true)); };
  const Tensor a = leaf(kFloat32), b = leaf(kBFloat16), c = leaf(kFloat32), late = leaf(kFloat32);
  optim::SGD optimizer(std::vector<optim::OptimizerParamGroup>{TensorList{a, b, c}},
                       optim::SGDOptions(0.5));
  CHECK(optimizer.flat_regions().empty());
  auto& regions = optimizer.flatten();
  REQUIRE(regions.size() == 2);
  CHECK(regions[0].params().size() == 2);
  CHECK(regions[0].parameters().dtype() == kFloat32);
  CHECK(regions[1].parameters().dtype() == kBFloat16);
  CHECK(regions[0].offsets() == std::vector<int64_t>{0, 32});
  CHECK(regions[0].numel() == 64);
  optimizer.add_param_group(optim::OptimizerParamGroup(TensorList{late}));
  const char* where = address(late);
  for (const Tensor& p : {a, b, c, late}) p.mutable_grad() = ones({3}, p.dtype());
  optimizer.step();
  CHECK(address(late) == where);
  CHECK(optimizer.flat_regions().size() == 2);
  const char* stays = address(a);
  optimizer.flatten();
  REQUIRE(optimizer.flat_regions().size() == 3);
  CHECK(address(late) != where);
  CHECK(address(a) == stays);
  for (const Tensor& p : {a, b, c, late}) CHECK(p.detach().equal(full({3}, 0.5, p.dtype())));
}

TEST_CASE("what flatten() cannot move is refused, and nothing has moved") {
  const auto refused = [](const TensorList& params, const char* reason) {
    const Tensor fine = ones({2}, requires_grad());
    const char* where = address(fine);
    TensorList all{fine};
    all.insert(all.end(), params.begin(), params.end());
    optim::SGD optimizer(all, optim::SGDOptions(0.1).momentum(0.9));
    CHECK_MESSAGE(has(message([&] { optimizer.flatten(); }), reason), reason);
    CHECK(address(fine) == where);
    CHECK(optimizer.flat_regions().empty());
  };
  const Tensor base = ones({4});
  refused({base.slice(0, 0, 2).set_requires_grad(true)}, "is a view of another tensor");
  const Tensor w = ones({3}, requires_grad());
  {
    const Tensor alias = w.detach();
    refused({w}, "[3] shares its bytes with another tensor");
  }
  {
    const Tensor loss = (w * w).sum();
    refused({w}, "shares its bytes with another tensor");
  }
  optim::SGD optimizer(TensorList{w}, optim::SGDOptions(0.1).momentum(0.9));
  w.mutable_grad() = ones({3});
  optimizer.step();
  {
    const Array held = optimizer.state_of(w).find("momentum_buffer")->second;
    CHECK(has(message([&] { optimizer.flatten(); }),
              "\"momentum_buffer\" of a parameter of shape [3] shares its bytes"));
  }
  CHECK_NOTHROW(optimizer.flatten());
}

TEST_CASE("gradients that do not fit are refused with both kinds, and none is moved") {
  Training t;
  t.backward();
  const TensorList p = t.params();
  const Tensor all = t.region().gradients();
  const Tensor elsewhere = p[0].grad().clone();
  p[0].mutable_grad() = elsewhere;
  p[1].mutable_grad() = p[1].grad().to(kFloat64);
  CHECK(has(message([&] { t.region().gradients(); }),
            "the gradient of parameter 1 ([33, 7], float64"));
  CHECK(address(p[0].grad()) == address(elsewhere));
}

TEST_CASE("a parameter that was given other bytes is named, and taken in again by flatten()") {
  Training t, other(kinds()[2].make, false);
  t.step(0, 2), other.step(0, 2);
  const TensorList p = t.params();
  p[1].set_data(p[1].detach().clone());
  CHECK(has(message([&] { t.region().parameters(); }), "parameter 1 of shape [33, 7]"));
  t.step(2, 3), other.step(2, 3);  // it trains on meanwhile
  CHECK(same(t, other));
  t.optimizer->zero_grad(), other.optimizer->zero_grad();
  t.optimizer->flatten();
  CHECK(in_place(t.region(), t.region().parameters(), p));
  CHECK(in_place(t.region(), t.region().state("exp_avg"), state_of(*t.optimizer, p, "exp_avg")));
  t.step(3, 5), other.step(3, 5);
  CHECK(same(t, other));
  CHECK(grads_in_place(t.region(), t.region().gradients()));
}

TEST_CASE("a model that is converted after flatten() trains on without it") {
  Training t;
  t.step(0, 2);
  t.optimizer->zero_grad();
  t.net->to(kFloat64);
  t.net->to(kFloat32);
  CHECK(has(message([&] { t.region().parameters(); }), "call flatten() again"));
  CHECK_NOTHROW(t.step(2, 4));
  CHECK_NOTHROW(t.optimizer->flatten());
}

TEST_CASE("parameters and gradients outlive their optimizer") {
  Training t;
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
  CHECK(grads_in_place(t.region(), t.region().gradients()));
}

TEST_CASE("nothing of flat storage is left when all who use it are gone") {
  const int64_t bytes = Buffer::live_bytes(), buffers = Buffer::live_count();
  {
    Training t(kinds()[3].make, true, kFloat32, Weights::Plain, true);
    t.step(0, 3);
  }
  CHECK(Buffer::live_count() <= buffers + 4);  // what is made once, as the ones of a backward pass
  CHECK(Buffer::live_bytes() <= bytes + 4096);
}

TEST_CASE("norms are clipped, and averages taken, of a flat optimizer as of any other") {
  Training t, other(kinds()[2].make, false);
  optim::AveragedModel ema(*t.net, optim::AveragedModelOptions().decay(0.9)),
      plain(*other.net, optim::AveragedModelOptions().decay(0.9));
  for (int step = 0; step < 4; ++step) {
    for (Training* each : {&t, &other}) {
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
    Training t(kinds()[2].make, flat);
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

TEST_CASE("recorded gradients are gradients like any other") {
  const Tensor w = full({4}, 3.0, requires_grad());
  optim::SGD optimizer(TensorList{w}, optim::SGDOptions(0.1));
  FlatRegion& region = optimizer.flatten()[0];
  (w * w * w).sum().backward({}, {}, true);
  CHECK(w.grad().requires_grad());
  w.grad().sum().backward();
  CHECK(w.grad().detach().equal(full({4}, 27.0 + 18.0)));
  const Tensor all = region.gradients();
  CHECK_FALSE(w.grad().requires_grad());
  CHECK(all.slice(0, 0, 4).equal(full({4}, 45.0)));
}

TEST_CASE("threads that run backward at once over one leaf add up what each of them found") {
  const Tensor w = zeros({8, 8}, requires_grad());
  optim::SGD optimizer(TensorList{w}, optim::SGDOptions(0.1));
  FlatRegion& region = optimizer.flatten()[0];
  const Tensor x = ones({2, 8}), all = region.gradients();
  constexpr int kThreads = 4, kTimes = 50;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      for (int t = 0; t < kTimes; ++t) linear(x, w, {}).sum().backward();
    });
  for (std::thread& t : threads) t.join();
  CHECK(w.grad().equal(full({8, 8}, 2.0 * kThreads * kTimes)));
  CHECK(region.gradients().slice(0, 0, 64).view({8, 8}).equal(w.grad()));
}
