// The 16-bit copies of weights that optimizers write for autocast: no cast in a training step, the
// bits of casting every time, and every way in which a copy may become stale.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <thread>

#include "halftape/autograd/tape/weight_cast.h"
#include "halftape/tests/support/close.h"
#include "halftape/tests/support/optimizers.h"
#include "halftape/tests/support/tracing_backend.h"

using namespace halftape;
using amp::autocast;
using detail::low_copy_count;
using testing::optimizer_kind;
using testing::OptimizerKind;
using testing::rule_optimizers;
using testing::same_bits;

namespace {

using Params = std::vector<Tensor>;
DeviceType device() { return get_default_device().type(); }

const OptimizerKind& sgd() { return optimizer_kind("SGD with momentum"); }

/// A network of three layers, with its optimizer.
struct WeightCastTraining {
  nn::Sequential model{nullptr};
  std::unique_ptr<optim::Optimizer> optimizer;
  Tensor x, y;
  Dtype dtype = kBFloat16;
  bool cache = true;

  explicit WeightCastTraining(const OptimizerKind& kind = sgd(), Dtype d = kBFloat16,
                              bool cached = true)
      : dtype(d), cache(cached) {
    manual_seed(17);
    model = nn::Sequential(nn::Linear(7, 33), nn::ReLU(), nn::Linear(33, 19), nn::ReLU(),
                           nn::Linear(19, 5));
    optimizer = kind.make(model->parameters());
    x = randn({24, 7});
    y = arange(24) % 5;
  }
  Tensor output() const {
    const autocast region(device(), dtype, true, cache);
    return model->forward(x);
  }
  Tensor loss() const { return nn::functional::cross_entropy(output(), y); }
  void step(int times = 1) {
    for (int i = 0; i < times; ++i) {
      optimizer->zero_grad();
      loss().backward();
      optimizer->step();
    }
  }
  /// The cast of the first weight that a region uses.
  Tensor cast_weight() const {
    const autocast region(device(), dtype);
    return amp::cast_if_eligible(model->parameters()[0], dtype).detach();
  }
  Tensor inferred_output() const {
    const InferenceMode inference;
    return output();
  }
  /// The number of casts of weights.
  int64_t casts(const testing::TracingBackend& trace) const {
    const Params weights = model->parameters();
    return std::count_if(trace.lowered.begin(), trace.lowered.end(), [&](const void* at) {
      return std::any_of(weights.begin(), weights.end(),
                         [&](const Tensor& w) { return w.const_data_ptr() == at; });
    });
  }
  /// True if a region computes the same bits as without copies.
  bool right() {
    const Tensor with = output();
    cache = false;
    const Tensor without = output();
    cache = true;
    return same_bits(with.detach(), without.detach());
  }
};

bool same_weights(const WeightCastTraining& a, const WeightCastTraining& b) {
  const Params p = a.model->parameters(), q = b.model->parameters();
  bool same = true;
  for (size_t i = 0; i < p.size(); ++i) same = same && same_bits(p[i].detach(), q[i].detach());
  return same;
}

}  // namespace

TEST_CASE("a training step under autocast casts no weight, whatever the optimizer") {
  for (const OptimizerKind& kind : rule_optimizers()) {
    for (const Dtype d : {kFloat16, kBFloat16}) {
      testing::TracingBackend trace;
      WeightCastTraining t(kind, d);
      t.step();
      CHECK(t.casts(trace) == 6);  // three weights and biases
      trace.clear();
      t.step(5);
      CHECK(t.casts(trace) == 0);
      CHECK(!trace.lowered.empty());  // activations are cast
      CHECK(t.right());
      trace.clear();
      WeightCastTraining without(kind, d, false);
      without.step(2);
      CHECK(without.casts(trace) == 12);
    }
  }
}

TEST_CASE("50 steps with the copies are 50 steps with a cast in each, bit for bit") {
  for (const OptimizerKind& kind : rule_optimizers()) {
    for (const Dtype d : {kFloat16, kBFloat16}) {
      WeightCastTraining with(kind, d), without(kind, d, false);
      with.step(50);
      without.step(50);
      CHECK(same_weights(with, without));
      CHECK(same_bits(with.output().detach(), without.output().detach()));
    }
  }
}

TEST_CASE("a skipped step leaves the copy as it is, and it still serves") {
  for (const OptimizerKind& kind : rule_optimizers()) {
    testing::TracingBackend trace;
    WeightCastTraining t(kind, kFloat16);
    t.step(2);
    const Tensor before = t.output().detach();
    amp::GradScaler scaler({.init_scale = 4});
    for (const double bad : {std::numeric_limits<double>::infinity(), 0.0}) {
      t.optimizer->zero_grad();
      scaler.scale(t.loss()).backward();
      if (bad != 0) t.model->parameters()[2].mutable_grad().fill_(bad);
      trace.clear();
      CHECK(scaler.step(*t.optimizer).applied() == (bad == 0));
      scaler.update();
      CHECK(same_bits(t.output().detach(), before) == (bad != 0));
      CHECK(t.casts(trace) == 0);
      CHECK(t.right());
    }
  }
}

TEST_CASE("a graph that is kept finds its weights as it saved them") {
  WeightCastTraining t;
  t.step(2);
  const Tensor x = t.x.clone().requires_grad_();
  const auto gradient = [&](const Tensor& y) { return autograd::grad({y}, {x}, {}, true)[0]; };
  Tensor y;
  {
    const autocast region(device(), t.dtype);
    y = t.model->forward(x).sum();
  }
  const Tensor before = gradient(y);
  testing::TracingBackend trace;
  t.step(2);
  // The graph, in which the layers are one op (mlp), holds those of weights and biases.
  CHECK(t.casts(trace) == 6);
  CHECK(same_bits(gradient(y), before));
  CHECK(t.right());
  trace.clear();
  t.step(2);
  CHECK(t.casts(trace) == 0);
  CHECK(same_bits(gradient(y), before));
}

TEST_CASE("whoever holds a cast weight keeps its values, and what he writes there stays his") {
  WeightCastTraining t;
  t.step(2);
  Tensor held = t.cast_weight();
  const Tensor was = held.clone();
  t.step();
  CHECK(same_bits(held, was));
  held = Tensor();
  t.step(2);
  held = t.cast_weight();
  held.fill_(3);
  CHECK(t.right());
  t.step();
  CHECK(t.right());
}

TEST_CASE("any other write to a weight makes its copy stale") {
  const std::vector<std::function<void(WeightCastTraining&, const Tensor&)>> writes = {
      [](WeightCastTraining&, const Tensor& w) { w.fill_(0.25); },
      [](WeightCastTraining&, const Tensor& w) { w.copy_(randn(w.sizes())); },
      [](WeightCastTraining&, const Tensor& w) { w.detach()[0].mul_(2); },
      [](WeightCastTraining&, const Tensor& w) { nn::init::normal_(w); },
      [](WeightCastTraining&, const Tensor& w) {
        if (w.is_cpu())
          w.data_ptr<float>()[1] = 5;
        else  // the host writes there through the library alone
          w.detach()[1][1].fill_(5);
      },
      [](WeightCastTraining&, const Tensor& w) { w.set_data(randn(w.sizes())); },
      [](WeightCastTraining&, const Tensor& w) { w.set_data(w.detach() * 3); },
      [](WeightCastTraining& t, const Tensor&) { t.model->to(kFloat64), t.model->to(kFloat32); },
      [](WeightCastTraining& t, const Tensor&) {
        for (const Tensor& p : t.model->parameters()) p.copy_(rand(p.sizes()));
      },
      [](WeightCastTraining&, const Tensor& w) {
        const InferenceMode inference;
        w.mul_(0.5);
      }};
  for (size_t i = 0; i < writes.size(); ++i) {
    CAPTURE(i);
    WeightCastTraining t, without(sgd(), kBFloat16, false);
    for (WeightCastTraining* each : {&t, &without}) {
      each->step(2);
      manual_seed(9);
      {
        const NoGradGuard no_grad;
        writes[i](*each, each->model->parameters()[2]);
      }
    }
    CHECK(t.right());
    t.step(3);
    without.step(3);
    CHECK(t.right());
    CHECK(same_weights(t, without));
  }
}

TEST_CASE("a weight that may be written through a plain pointer is cast in every region") {
  std::vector<float> mine(12, 1);
  const Tensor blob = from_blob(mine.data(), {3, 4}, TensorOptions().requires_grad(true));
  const Tensor taken = ones({3, 4}, requires_grad()), stored = ones({3, 4}, requires_grad()),
               read = ones({3, 4}, requires_grad());
  float* const a = taken.data_ptr<float>();
  auto* const b = static_cast<float*>(stored.storage().data_ptr().get());
  auto* const c = read.accessor<float, 2>().data();
  const Tensor x = ones({1, 4});
  const auto use = [&](const Tensor& w) {
    const autocast region(device(), kFloat16);
    return linear(x, w)[0][0].item();
  };
  for (const auto& [w, at] : {std::pair{blob, mine.data()}, {taken, a}, {stored, b}, {read, c}}) {
    optim::SGD sgd({w}, optim::SGDOptions(0));
    for (int i = 1; i < 4; ++i) {
      at[0] = static_cast<float>(i);
      CHECK(use(w) == i + 3);
      CHECK(low_copy_count() == 0);
      w.mutable_grad() = ones({3, 4});
      sgd.step();
    }
  }
  const Tensor safe = ones({3, 4}, requires_grad());
  CHECK(safe.const_data_ptr<float>()[0] == 1);
  use(safe);
  CHECK(low_copy_count() == 1);
  static_cast<float*>(safe.storage().data_ptr().get())[0] = 7;  // changes no version
  CHECK(use(safe) == 10);
}

TEST_CASE("regions of two dtypes are both right, and the first one's copies are kept") {
  WeightCastTraining t(sgd(), kFloat16), without(sgd(), kFloat16, false);
  testing::TracingBackend trace;
  const auto both = [](WeightCastTraining& each) {
    each.optimizer->zero_grad();
    each.dtype = kFloat16;
    each.loss().backward();
    each.dtype = kBFloat16;
    each.loss().backward();
    each.optimizer->step();
  };
  for (int i = 0; i < 5; ++i) {
    trace.clear();
    both(t);
    CHECK(t.casts(trace) == (i == 0 ? 12 : 6));
    both(without);
    CHECK(same_weights(t, without));
  }
  // The other dtype alone takes the place at once.
  trace.clear();
  t.step(3);
  CHECK(t.casts(trace) == 6);
  CHECK(t.right());
}

TEST_CASE("without the cache no copies are made, and none of those that are there is used") {
  const size_t others = low_copy_count();
  WeightCastTraining t(sgd(), kBFloat16, false);
  testing::TracingBackend trace;
  t.step(2);
  CHECK(low_copy_count() == others);
  t.cache = true;
  t.step(2);
  CHECK(low_copy_count() == others + 6);
  t.cache = false;
  trace.clear();
  t.step();
  CHECK(t.casts(trace) == 6);
}

TEST_CASE("inference keeps no copies, and is right beside those of training") {
  const size_t others = low_copy_count();
  WeightCastTraining t;
  (void)t.inferred_output();
  CHECK(low_copy_count() == others);
  for (int i = 0; i < 3; ++i) {
    t.step();
    const Tensor y = t.inferred_output();
    CHECK(same_bits(y, t.output().detach()));
  }
}

TEST_CASE("copies cost two bytes per weight, until the weight goes, or clear_autocast_cache()") {
  const auto bytes = [] { return Buffer::live_bytes(); };
  const size_t others = low_copy_count();
  int64_t weights = 0;
  {
    WeightCastTraining t(optimizer_kind("SGD"));
    for (const Tensor& p : t.model->parameters()) weights += p.numel();
    t.step();
    CHECK(low_copy_count() == others + 6);
    t.optimizer->zero_grad();
    const int64_t with = bytes();
    amp::clear_autocast_cache();
    CHECK(low_copy_count() == 0);
    CHECK(with - bytes() >= 2 * weights);
    CHECK(with - bytes() < 5 * weights / 2 + 6 * 128);  // rounded up, each with a head
    t.step();
    CHECK(t.right());
    CHECK(low_copy_count() == 6);
  }
  CHECK(low_copy_count() == 0);
}

TEST_CASE("a copy that no region asks for is let go after some steps") {
  WeightCastTraining t;
  t.step();
  const size_t count = low_copy_count();
  for (int i = 1; i < detail::kMostIdleUpdates; ++i) {
    t.optimizer->step();  // the gradients are still there
    CHECK(low_copy_count() == count);
  }
  t.optimizer->step();
  CHECK(low_copy_count() == count - 6);
  CHECK(t.right());
}

TEST_CASE("several optimizers of one weight write its copy in turn") {
  WeightCastTraining t, without(sgd(), kBFloat16, false);
  testing::TracingBackend trace;
  const auto other = [](WeightCastTraining& each) {
    return std::make_unique<optim::Adam>(each.model->parameters(), optim::AdamOptions(0.01));
  };
  const auto a = other(t), b = other(without);
  for (int i = 0; i < 4; ++i) {
    trace.clear();
    t.step();
    a->step();
    CHECK(t.casts(trace) == (i == 0 ? 6 : 0));
    without.step();
    b->step();
    CHECK(same_weights(t, without));
    CHECK(t.right());
  }
}

TEST_CASE("two leaves over the same bytes are both right after a step of both") {
  const Tensor a = rand({4, 4}, requires_grad()), b = a.detach().set_requires_grad(true);
  const Tensor x = eye(4);
  optim::SGD sgd({a, b}, optim::SGDOptions(0.5));
  for (int i = 0; i < 3; ++i) {
    for (const Tensor& w : {a, b}) {
      const autocast region(device(), kFloat16);
      CHECK(same_bits(linear(x, w).detach(), a.detach().to(kFloat16).t().contiguous()));
    }
    a.mutable_grad() = ones({4, 4});
    b.mutable_grad() = full({4, 4}, 2.0);
    sgd.step();
  }
}

TEST_CASE("threads that share a model are right, and one of them may clear the caches") {
  WeightCastTraining t;
  for (int round = 0; round < 10; ++round) {
    t.cache = false;
    const Tensor expected = t.output().detach();
    t.cache = true;
    std::vector<int> right(4);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < right.size(); ++i)
      threads.emplace_back([&, i] {
        for (int n = 0; n < 5; ++n) {
          right[i] += same_bits(t.output().detach(), expected);
          if (i == 3 && n == round % 5) amp::clear_autocast_cache();
        }
      });
    for (std::thread& each : threads) each.join();
    CHECK(right == std::vector<int>(4, 5));
    t.step();
  }
}

TEST_CASE("a model that an AsyncOptimizer writes is cast anew, and right") {
  std::vector<Tensor> outputs;
  for (const bool cache : {true, false}) {
    WeightCastTraining t(sgd(), kBFloat16, cache);
    optim::AsyncOptimizer optimizer(std::move(t.optimizer));
    for (int i = 0; i < 10; ++i) {
      t.loss().backward();
      optimizer.step({.is_async = i % 3 != 0});
    }
    optimizer.synchronize();
    outputs.push_back(t.output().detach());
  }
  CHECK(same_bits(outputs[0], outputs[1]));
}

TEST_CASE("a step inside the region that made the copies casts anew, and is right") {
  WeightCastTraining t;
  t.step();
  testing::TracingBackend trace;
  {
    const autocast region(device(), t.dtype);
    t.step();
    trace.clear();
    t.step();
    CHECK(t.casts(trace) == 6);
  }
  CHECK(t.right());
}

TEST_CASE("a run resumed from its weights and its optimizer's state continues bit for bit") {
  WeightCastTraining whole;
  whole.step(4);
  WeightCastTraining resumed;
  resumed.step(2);  // it has copies, of other weights
  {
    const NoGradGuard no_grad;
    for (size_t i = 0; i < 6; ++i)
      resumed.model->parameters()[i].copy_(whole.model->parameters()[i]);
  }
  resumed.optimizer->load_state_dict(whole.optimizer->state_dict());
  whole.step(4);
  resumed.step(4);
  CHECK(same_weights(whole, resumed));
}
