// Gradients in flat storage: where backward() leaves them, and who else may hold them.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "halftape/tests/support/flat_training.h"
#include "halftape/tests/support/tracing_backend.h"

using namespace halftape;
using namespace halftape::testing;
using optim::FlatRegion;
using optim::Weights;

namespace {

/// What the losses of layers read.
struct Inputs {
  Tensor x = randn({6, 8}), images = randn({2, 3, 6, 6});
};
/// A layer's rule: the shapes of its parameters, and a loss of them.
struct Layer {
  std::string name;
  std::vector<Shape> shapes;
  std::function<Tensor(const Inputs& in, const TensorList& p)> loss;
};

std::vector<Layer> products() {
  const std::vector<Shape> mlp_shapes = {{16, 8}, {16}, {5, 16}, {5}};
  const auto fused = [](const Inputs& in, const TensorList& p, const Tensor& scale) {
    return mlp_loss(in.x, zeros({6, 5}), {p[0], p[2]}, {p[1], p[3]}, Activation::Relu, scale);
  };
  return {
      {"linear", {{5, 8}, {5}}, [](auto& in, auto& p) { return linear(in.x, p[0], p[1]).sum(); }},
      {"linear, no bias", {{5, 8}}, [](auto& in, auto& p) { return linear(in.x, p[0], {}).sum(); }},
      {"linear with gelu",
       {{8, 8}, {8}},
       [](auto& in, auto& p) { return linear(in.x, p[0], p[1], Activation::Gelu).sum(); }},
      {"mlp", mlp_shapes,
       [](auto& in, auto& p) {
         return mlp(in.x, {p[0], p[2]}, {p[1], p[3]}, Activation::Relu).sum();
       }},
      {"mlp_loss", mlp_shapes, [fused](auto& in, auto& p) { return fused(in, p, {}); }},
      {"mlp_loss with a scale", mlp_shapes,
       [fused](auto& in, auto& p) { return fused(in, p, ones({})); }},
      {"matmul and bias",
       {{8, 5}, {5}},
       [](auto& in, auto& p) { return (matmul(in.x, p[0]) + p[1]).sum(); }},
      {"addmm", {{8, 5}, {5}}, [](auto& in, auto& p) { return addmm(p[1], in.x, p[0]).sum(); }},
  };
}

std::vector<Layer> other_layers() {
  return {
      {"embedding", {{9, 4}}, [](auto&, auto& p) { return embedding(p[0], arange(6) % 9).sum(); }},
      {"layer_norm",
       {{8}, {8}},
       [](auto& in, auto& p) { return layer_norm(in.x, {8}, p[0], p[1]).sum(); }},
      {"rms_norm", {{8}}, [](auto& in, auto& p) { return rms_norm(in.x, {8}, p[0]).sum(); }},
      {"batch_norm",
       {{3}, {3}},
       [](auto& in, auto& p) {
         return batch_norm(in.images, {}, {}, p[0], p[1], true, 0.1, 1e-5).sum();
       }},
      {"conv2d",
       {{4, 3, 3, 3}, {4}},
       [](auto& in, auto& p) { return conv2d(in.images, p[0], p[1]).sum(); }},
      {"conv_transpose2d",
       {{3, 4, 3, 3}, {4}},
       [](auto& in, auto& p) { return conv_transpose2d(in.images, p[0], p[1]).sum(); }},
  };
}

/// With and without flat storage, and under autocast where `lowered`.
void check_layer(const Layer& layer, const Inputs& in, bool lowered) {
  TensorList flat, plain;
  for (const Shape& shape : layer.shapes) {
    flat.push_back(randn(shape).set_requires_grad(true));
    plain.push_back(flat.back().detach().clone().set_requires_grad(true));
  }
  const auto optimizer = adam(flat);
  FlatRegion& region = optimizer->flatten()[0];
  const Tensor all = region.gradients();
  for (const TensorList& p : {flat, plain}) {
    Tensor loss;
    {
      const amp::autocast autocast(get_default_device().type(), kBFloat16, lowered);
      loss = layer.loss(in, p);
    }
    loss.backward();
  }
  CHECK(grads_in_slots(region, all));
  for (size_t i = 0; i < flat.size(); ++i) CHECK(same_bits(flat[i].grad(), plain[i].grad()));
  CHECK(padding(region, all) == 0);
}

}  // namespace

TEST_CASE("gradients of every layer's rule lie in their slots after backward()") {
  manual_seed(3);
  const Inputs in;
  for (const std::vector<Layer>& layers : {products(), other_layers()}) {
    for (const Layer& layer : layers) {
      CAPTURE(layer.name);
      for (const bool lowered : {false, true}) {
        CAPTURE(lowered);
        check_layer(layer, in, lowered);
      }
    }
  }
}

TEST_CASE("gradients lie in their slots in a chain under autocast, with a scaler") {
  FlatTraining t(adam_kind(), true, kFloat32, Weights::Plain, true);
  const Tensor all = t.region().gradients();
  for (int step = 0; step < 6; ++step) {
    t.step(step, step + 1);
    CHECK(grads_in_slots(t.region(), all));
    CHECK(address(t.region().gradients()) == address(all));
  }
}

TEST_CASE("the fused loss of a Sequential leaves its gradients in their slots") {
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
      const amp::autocast lower(get_default_device().type(), kFloat16);
      loss = model->loss(x, y, scaler.factor());
    }
    scaler.scale(loss).backward();
    CHECK(grads_in_slots(region, all));
    CHECK(scaler.step(*optimizer).applied());
    scaler.update();
  }
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
  FlatTraining t(adam_kind(), true, kFloat32, Weights::Plain, true);
  t.backward();
  const TensorList p = t.params();
  const Tensor all = t.region().gradients();
  const Tensor moved = p[1].grad().clone(), changed = p[2].grad().clone();
  {
    // With the mark that backward() left.
    const GradMark mark = mark_of(p[1].grad());
    REQUIRE(mark.known);
    p[1].mutable_grad() = moved;
    set_mark(p[1].grad(), mark.tag);
  }
  p[2].mutable_grad() = changed;
  CHECK_FALSE(grads_in_slots(t.region(), all));
  CHECK(address(t.region().gradients()) == address(all));
  CHECK(grads_in_slots(t.region(), all));
  CHECK(same_bits(p[1].grad(), moved));
  CHECK(same_bits(p[2].grad(), changed));
  CHECK(mark_of(p[1].grad()).known);
  CHECK(mark_of(p[1].grad()).tag);
  CHECK_FALSE(mark_of(p[2].grad()).known);      // assigned by hand
  CHECK_THROWS_AS(t.optimizer->step(), Error);  // it is still scaled
  CHECK(t.scaler->step(*t.optimizer).applied());
}

TEST_CASE("parameters without a gradient have zeros there, and remain without") {
  FlatTraining t;
  t.step(0, 1);
  t.optimizer->zero_grad();
  const TensorList p = t.params();
  (p[1] * p[1]).sum().backward();
  const Tensor all = t.region().gradients();
  CHECK(all.abs().sum().item<double>() ==
        doctest::Approx(p[1].grad().abs().sum().item<double>()).epsilon(1e-5));
  for (size_t i = 0; i < p.size(); ++i) CHECK(p[i].grad().defined() == (i == 1));
  CHECK(grads_in_slots(t.region(), all));
}

TEST_CASE("an earlier gradient that somebody holds stays as it is") {
  FlatTraining t, other(adam_kind(), false);
  t.backward();
  const Tensor held = t.params()[1].grad(), copy = held.clone();
  const Tensor all = t.region().gradients();
  t.optimizer->zero_grad();
  t.backward(1);
  other.backward(1);
  CHECK(same_bits(held, copy));
  CHECK_FALSE(grads_in_slots(t.region(), all));
  CHECK(same(t, other));
  const Tensor now = t.region().gradients();
  CHECK(address(now) != address(all));  // a new buffer
  CHECK(grads_in_slots(t.region(), now));
  now.mul_(3);
  CHECK(same_bits(held, copy));
  CHECK(same_bits(t.params()[1].grad(), other.params()[1].grad() * 3));
  t.optimizer->zero_grad(false);
  CHECK(same_bits(held, copy));
  t.optimizer->zero_grad();
  t.backward();
  CHECK(grads_in_slots(t.region(), now));  // the backward pass knows the new one
}

TEST_CASE("accumulated gradients are added in their slots") {
  FlatTraining t, other(adam_kind(), false);
  const Tensor all = t.region().gradients();
  for (int step = 0; step < 3; ++step) {
    for (FlatTraining* each : {&t, &other}) {
      each->optimizer->zero_grad();
      for (int micro = 0; micro < 3; ++micro) each->backward(3 * step + micro);
      each->optimizer->step();
    }
    CHECK(grads_in_slots(t.region(), all));
    CHECK(same(t, other));
  }
}

TEST_CASE("a weight that is used twice has the sum of both gradients in its slot") {
  for (const bool lowered : {false, true}) {
    CAPTURE(lowered);
    manual_seed(2);
    const Tensor x = randn({6, 8});
    const auto run = [&](const Tensor& w) {
      Tensor loss;
      {
        const amp::autocast region(get_default_device().type(), kBFloat16, lowered);
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
  FlatTraining t, other(adam_kind(), false);
  for (FlatTraining* each : {&t, &other}) {
    for (const Tensor& p : each->net->chain->parameters()) p.requires_grad_(false);
    each->step(0, 3);
  }
  CHECK(same(t, other));
  // Thawed, they begin another end of the tape, and find their slots from the second step on.
  for (FlatTraining* each : {&t, &other}) {
    for (const Tensor& p : each->net->chain->parameters()) p.requires_grad_(true);
    each->step(3, 5);
  }
  CHECK(same(t, other));
  CHECK(grads_in_slots(t.region(), t.region().gradients()));
  const Tensor all = t.region().gradients();
  t.step(5, 6);
  CHECK(grads_in_slots(t.region(), all));
}

TEST_CASE("zero_grad(false) is one fill where everything is in place") {
  FlatTraining t, other(adam_kind(), false);
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
