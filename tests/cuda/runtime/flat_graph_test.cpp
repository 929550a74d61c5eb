// Captured steps of an optimizer in flat storage: one copy more for each gradient, and the same
// bits.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <memory>
#include <string>
#include <vector>

#include "halftape/tests/support/close.h"
#include "halftape/tests/support/message.h"

using namespace halftape;
using optim::FlatRegion;
using testing::has;
using testing::message;
using testing::same_bits;

namespace {

enum class Way { Forward, Loss };

/// AMP training in float16 on data that changes with every step; the gradients of step 3 overflow.
struct FlatGraphTraining {
  nn::Sequential model{nullptr};
  std::unique_ptr<optim::AdamW> optimizer;
  amp::GradScaler scaler{{.init_scale = 1024, .growth_interval = 3}};
  Tensor x = zeros({16, 8}), y = zeros({16}, kInt64), weight = ones({}), loss;
  Way way;
  bool clipped = false, reduced = false;
  int64_t nodes = 0;

  explicit FlatGraphTraining(bool flat, Way how = Way::Forward) : way(how) {
    manual_seed(3);
    model = nn::Sequential(nn::Linear(8, 32), nn::ReLU(), nn::Linear(32, 4));
    optimizer = std::make_unique<optim::AdamW>(model->parameters(), optim::AdamWOptions(1e-2));
    if (flat) optimizer->flatten();
  }
  void feed(int step) {
    x.copy_((arange(0, 128).to(kFloat32) * (0.1 + 0.05 * step)).sin().reshape({16, 8}));
    weight.fill_(step == 3 && way == Way::Forward ? 1e6 : 1.0);
    y.copy_((arange(0, 16) * (step + 1)).remainder(4));
  }
  void backward(bool scaled = true) {
    {
      const amp::autocast region(kCUDA, kFloat16);
      loss = way == Way::Loss ? model->loss(x, y, scaler.factor())
                              : nn::functional::cross_entropy(model->forward(x), y) * weight;
    }
    (scaled ? scaler.scale(loss) : loss).backward();
  }
  void update() {
    if (reduced)
      for (FlatRegion& region : optimizer->flat_regions()) region.gradients().mul_(0.5);
    if (clipped) {
      scaler.unscale_(*optimizer);
      (void)nn::utils::clip_grad_norm_(model->parameters(), 0.25);
    }
    scaler.step(*optimizer);
    scaler.update();
  }
  void step() {
    optimizer->zero_grad();
    backward();
    update();
  }
  FlatRegion& region() { return optimizer->flat_regions().at(0); }
  /// All results of a step, by value.
  std::vector<Tensor> all() const {
    std::vector<Tensor> values{loss.detach().clone()};
    for (const auto& [name, value] : scaler.state_dict())
      values.push_back(full({}, value, kFloat64));
    for (const Tensor& p : model->parameters()) {
      values.push_back(p.detach().clone());
      if (p.grad().defined()) values.push_back(p.grad().clone());
      for (const auto& [key, value] : optimizer->state_of(p))
        values.push_back(Tensor(value.clone()));
    }
    return values;
  }
};

bool same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  bool all = a.size() == b.size();
  for (size_t i = 0; all && i < a.size(); ++i) all = same_bits(a[i], b[i]);
  return all;
}

/// The results of some steps.
std::vector<std::vector<Tensor>> followed(FlatGraphTraining& t, bool graphed, int steps) {
  std::unique_ptr<Graph> graph;
  if (graphed) {
    t.feed(0);
    graph = std::make_unique<Graph>(kCUDA, [&] { t.step(); });
    t.nodes = graph->size();
  }
  std::vector<std::vector<Tensor>> all;
  for (int i = 0; i < steps; ++i) {
    t.feed(i);
    graph ? graph->replay() : t.step();
    all.push_back(t.all());
  }
  return all;
}

bool grads_in_place(FlatRegion& region, const Tensor& all) {
  bool yes = true;
  for (size_t i = 0; i < region.params().size(); ++i)
    yes = yes && region.params()[i].grad().const_data_ptr() ==
                     all.slice(0, region.offsets()[i]).const_data_ptr();
  return yes;
}

}  // namespace

TEST_CASE("a captured step of a flat optimizer copies each gradient and leaves another's bits") {
  for (const Way way : {Way::Forward, Way::Loss}) {
    for (const bool clipped : {false, true}) {
      CAPTURE(static_cast<int>(way));
      CAPTURE(clipped);
      FlatGraphTraining called(false, way), flat_called(true, way), replayed(false, way),
          flat_replayed(true, way);
      for (FlatGraphTraining* t : {&called, &flat_called, &replayed, &flat_replayed})
        t->clipped = clipped;
      const auto expected = followed(called, false, 7);
      const auto a = followed(flat_called, false, 7), b = followed(replayed, true, 7),
                 c = followed(flat_replayed, true, 7);
      // With copies between them, the fused loss and the scaler's check are two launches. A norm
      // for clipping separates them as well.
      const int64_t copies = 4, check = way == Way::Loss && !clipped ? 1 : 0;
      CHECK(flat_replayed.nodes == replayed.nodes + copies + check);
      MESSAGE(std::string(way == Way::Loss ? "loss()" : "forward()"),
              std::string(clipped ? ", clipped: " : ": "), replayed.nodes, " nodes, flat ",
              flat_replayed.nodes);
      for (size_t i = 0; i < expected.size(); ++i) {
        CAPTURE(i);
        CHECK(same(expected[i], a[i]));
        CHECK(same(expected[i], b[i]));
        CHECK(same(expected[i], c[i]));
      }
    }
  }
}

TEST_CASE(
    "gradients of a captured step lie in their slots, those of steps between replays do not") {
  FlatGraphTraining t(true), other(false);
  t.feed(0), other.feed(0);
  Graph graph(kCUDA, [&] { t.step(); });
  const Tensor all = t.region().gradients();
  CHECK(grads_in_place(t.region(), all));
  const auto step_on = [&](int i, bool replay) {
    t.feed(i), other.feed(i);
    replay ? graph.replay() : t.step();
    other.step();
    for (size_t k = 0; k < t.model->parameters().size(); ++k)
      CHECK(same_bits(t.model->parameters()[k].detach(), other.model->parameters()[k].detach()));
  };
  step_on(0, true);
  step_on(1, true);
  CHECK(grads_in_place(t.region(), all));
  step_on(2, false);
  CHECK_FALSE(grads_in_place(t.region(), all));
  // They stay the user's after the next replay.
  std::vector<Tensor> held;
  for (const Tensor& p : t.model->parameters()) held.push_back(p.grad().clone());
  step_on(4, true);
  const auto params = t.model->parameters();
  for (size_t k = 0; k < params.size(); ++k) CHECK(same_bits(params[k].grad(), held[k]));
  // They have a buffer of their own if all of them are wanted.
  const Tensor own = t.region().gradients();
  CHECK(own.const_data_ptr() != all.const_data_ptr());
  step_on(5, true);
  for (size_t k = 0; k < params.size(); ++k) CHECK(same_bits(params[k].grad(), held[k]));
  step_on(6, false);
  CHECK(grads_in_place(t.region(), own));
}

TEST_CASE("slots that a graph wrote are free when it is gone") {
  FlatGraphTraining t(true);
  t.feed(0);
  const Tensor all = t.region().gradients();
  {
    Graph graph(kCUDA, [&] { t.step(); });
    graph.replay();
  }
  t.step();
  CHECK(grads_in_place(t.region(), all));
}

TEST_CASE("what is done to all gradients of a region is captured as if it were done to one") {
  FlatGraphTraining t(true), plain(true), eager(true);
  t.reduced = eager.reduced = true;
  const auto replayed = followed(t, true, 5), called = followed(eager, false, 5);
  (void)followed(plain, true, 1);
  const Tensor one = ones({32});
  const Graph alone(kCUDA, [&] { one.mul_(0.5); });
  CHECK(t.nodes == plain.nodes + alone.size());
  for (size_t i = 0; i < called.size(); ++i) CHECK(same(called[i], replayed[i]));
}

TEST_CASE("a graph of forward and backward alone leaves gradients for what follows, in place") {
  FlatGraphTraining t(true), eager(true);
  const auto backward = [](FlatGraphTraining& of) {
    of.optimizer->zero_grad();
    of.backward(false);
  };
  t.feed(0);
  Graph graph(kCUDA, [&] { backward(t); });
  for (int i = 0; i < 5; ++i) {
    t.feed(i), eager.feed(i);
    graph.replay();
    backward(eager);
    const Tensor all = t.region().gradients();
    CHECK(grads_in_place(t.region(), all));
    for (FlatGraphTraining* each : {&t, &eager}) {
      each->region().gradients().mul_(0.5);
      each->optimizer->step();
    }
    CHECK(same(t.all(), eager.all()));
  }
}

TEST_CASE("several steps in one graph use the slots one after the other") {
  FlatGraphTraining t(true), eager(true);
  std::vector<Tensor> xs;
  for (int i = 0; i < 3; ++i) {
    eager.feed(i);
    xs.push_back(eager.x.clone());
  }
  eager.feed(0), t.feed(0);
  const Tensor all = t.region().gradients();
  Graph graph(kCUDA, [&] {
    for (const Tensor& x : xs) {
      t.x.copy_(x);
      t.step();
    }
  });
  CHECK(grads_in_place(t.region(), all));
  for (int round = 0; round < 3; ++round) {
    graph.replay();
    for (const Tensor& x : xs) {
      eager.x.copy_(x);
      eager.step();
    }
    CHECK(same(t.all(), eager.all()));
  }
}

TEST_CASE("gradients that are filled with zeros and added to are captured flat, too") {
  FlatGraphTraining t(true), eager(false);
  t.feed(0), eager.feed(0);
  const auto step = [](FlatGraphTraining& of) {
    of.optimizer->zero_grad(false);
    of.backward();
    of.backward();
    of.update();
  };
  step(t), step(eager);  // now the gradients exist
  Graph graph(kCUDA, [&] { step(t); });
  for (int i = 0; i < 5; ++i) {
    t.feed(i), eager.feed(i);
    graph.replay();
    step(eager);
    CHECK(same(t.all(), eager.all()));
  }
}

TEST_CASE("making a graph of a flat optimizer's step leaves everything as it was") {
  FlatGraphTraining t(true);
  for (int i = 0; i < 2; ++i) t.feed(i), t.step();
  const Tensor weights = t.region().parameters().clone(),
               moments = t.region().state("exp_avg").clone();
  Graph graph(kCUDA, [&] { t.step(); });
  CHECK(same_bits(t.region().parameters(), weights));
  CHECK(same_bits(t.region().state("exp_avg"), moments));
}

TEST_CASE("a captured step that writes through the tensor of all is put back, too") {
  FlatGraphTraining t(true);
  t.feed(0);
  t.step();
  const Tensor weights = t.region().parameters().clone();
  const Tensor all = t.region().parameters();
  Graph graph(kCUDA, [&] {
    t.step();       // writes each, …
    all.mul_(0.5);  // … then all, …
    t.step();       // … then each again
  });
  CHECK(same_bits(t.region().parameters(), weights));
  FlatGraphTraining eager(true);
  eager.feed(0);
  eager.step();
  for (int i = 0; i < 3; ++i) {
    graph.replay();
    eager.step();
    {
      const NoGradGuard no_grad;
      eager.region().parameters().mul_(0.5);
    }
    eager.step();
    CHECK(same(t.all(), eager.all()));
  }
}

TEST_CASE("flatten() is refused inside a captured step, and after one was captured") {
  FlatGraphTraining t(false);
  t.feed(0);
  CHECK(has(message([&] { Graph(kCUDA, [&] { t.optimizer->flatten(); }); }),
            "flatten: inside the step of a Graph"));
  {
    Graph graph(kCUDA, [&] { t.step(); });
    CHECK(has(message([&] { t.optimizer->flatten(); }),
              "is used by a Graph; call flatten() before the graph is captured"));
    CHECK(t.optimizer->flat_regions().empty());
  }
  t.loss = {};
  CHECK_NOTHROW(t.optimizer->flatten());
}

TEST_CASE("a captured step that goes on with gradients of its trial is refused, flat or not") {
  for (const bool flat : {false, true}) {
    FlatGraphTraining t(flat);
    t.feed(0);
    CHECK(has(message([&] {
                Graph(kCUDA, [&] {
                  t.backward();
                  t.update();
                });
              }),
              "begin the step with zero_grad()"));
  }
}
