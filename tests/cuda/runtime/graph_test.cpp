// A step that is captured once and replayed: the same bits as calling it.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#if defined(HALFTAPE_SIMT)
#include "runtime/device.h"
#include "settings.h"
#endif

using namespace halftape;

namespace {

/// How a step computes its loss: by layers, with a larger loss at one step, or by calls that a
/// captured step joins.
enum class Loss { Weighted, CrossEntropy, Mlp };

/// AMP training in float16 with dropout, on data that changes with every step.
struct GraphTraining {
  nn::Sequential model{nn::Linear(8, 32), nn::ReLU(), nn::Dropout(0.25), nn::Linear(32, 4)};
  std::unique_ptr<optim::Optimizer> optimizer;
  amp::GradScaler scaler{{.init_scale = 1024, .growth_interval = 4}};
  Tensor x = zeros({16, 8}), y = zeros({16}, kInt64), weight = ones({}), loss;
  Loss kind;

  explicit GraphTraining(bool adam, Loss how = Loss::Weighted) : kind(how) {
    if (how != Loss::Weighted) {
      model = nn::Sequential(nn::Linear(8, 32), nn::ReLU(), nn::Linear(32, 4));
      scaler = amp::GradScaler({.init_scale = 0x1p19, .growth_interval = 3});
    }
    if (adam)
      optimizer = std::make_unique<optim::AdamW>(model->parameters(), optim::AdamWOptions(1e-2));
    else
      optimizer =
          std::make_unique<optim::SGD>(model->parameters(), optim::SGDOptions(1e-2).momentum(0.9));
  }
  void feed(int step) {
    x.copy_((arange(0, 128).to(kFloat32) * (0.1 + 0.05 * step)).sin().reshape({16, 8}));
    weight.fill_(step == 3 ? 1e6 : 1.0);  // too much for gradients in float16
    // By then the scale is 2^20, and a row whose class is improbable has a slope of −2^16.
    if (kind != Loss::Weighted && step == 3) x.mul_(1e3);
    if (kind != Loss::Weighted && step == 6) x.mul_(1e30);  // the loss is not finite
    y.copy_((arange(0, 16) * (step + 1)).remainder(4));
  }
  void step() {
    optimizer->zero_grad();
    {
      const amp::autocast region(kCUDA, kFloat16);
      if (kind == Loss::Mlp)
        loss = model->loss(x, y, scaler.factor());
      else
        loss = nn::functional::cross_entropy(model->forward(x), y);
      if (kind == Loss::Weighted) loss = loss * weight;
    }
    scaler.scale(loss).backward();
    scaler.step(*optimizer);
    scaler.update();
  }
  /// All results of a step.
  std::vector<double> all() const {
    std::vector<double> values{loss.item<double>(), static_cast<double>(scaler.get_scale()),
                               static_cast<double>(scaler.get_growth_tracker())};
    if (kind != Loss::Weighted)
      for (const auto& [name, value] : scaler.state_dict()) values.push_back(value);
    for (const Tensor& p : model->parameters()) {
      for (double v : p.detach().to(kCPU).to(kFloat64).flatten().to_vector<double>())
        values.push_back(v);
      if (kind != Loss::Weighted && p.grad().defined())
        for (double v : p.grad().to(kCPU).to(kFloat64).flatten().to_vector<double>())
          values.push_back(v);
      for (const auto& [name, a] : optimizer->state_of(p))
        for (double v : Tensor(a).to(kCPU).to(kFloat64).flatten().to_vector<double>())
          values.push_back(v);
    }
    return values;
  }
};

/// The results of every step of a training, called or replayed.
std::vector<std::vector<double>> followed(bool adam, bool graphed, int steps,
                                          Loss kind = Loss::Weighted) {
  manual_seed(3);
  GraphTraining t(adam, kind);
  std::unique_ptr<Graph> graph;
  if (graphed) {
    t.feed(0);
    graph = std::make_unique<Graph>(kCUDA, [&] { t.step(); });
  }
  std::vector<std::vector<double>> all;
  for (int i = 0; i < steps; ++i) {
    t.feed(i);
    graph ? graph->replay() : t.step();
    all.push_back(t.all());
  }
  return all;
}

}  // namespace

TEST_CASE("replays of an AMP step leave the bits that calls of it leave, also after an overflow") {
  for (const bool adam : {false, true}) {
    CAPTURE(adam);
    const auto called = followed(adam, false, 8), replayed = followed(adam, true, 8);
    for (size_t i = 0; i < called.size(); ++i) {
      CAPTURE(i);
      CHECK(called[i] == replayed[i]);
    }
    CHECK(called[3][1] == 512);           // the overflow was there
    CHECK(called[7][0] != called[6][0]);  // and the steps differ
  }
}

TEST_CASE("replays of a step whose calls are joined leave the bits that calls one by one leave") {
  for (const Loss kind : {Loss::CrossEntropy, Loss::Mlp}) {
    for (const bool adam : {false, true}) {
      CAPTURE(static_cast<int>(kind));
      CAPTURE(adam);
      const auto same = [](const std::vector<double>& a, const std::vector<double>& b) {
        return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](double x, double y) {
          return x == y || (std::isnan(x) && std::isnan(y));
        });
      };
      const auto called = followed(adam, false, 8, kind), replayed = followed(adam, true, 8, kind);
      for (size_t i = 0; i < called.size(); ++i) {
        CAPTURE(i);
        CHECK(same(called[i], replayed[i]));
      }
      CHECK(called[2][1] == 0x1p20);
      CHECK(called[3][1] == 0x1p19);        // the overflow was there
      CHECK(std::isnan(called[6][0]));      // and the loss that is not finite
      CHECK(called[6][1] == called[5][1]);  // which does not change the scale
    }
  }
}

TEST_CASE("a replay sees the learning rate that is set by then, and steps between replays count") {
  for (const bool adam : {false, true}) {
    CAPTURE(adam);
    std::vector<std::vector<double>> ends;
    for (const bool graphed : {false, true}) {
      manual_seed(3);
      GraphTraining t(adam);
      std::unique_ptr<Graph> graph;
      if (graphed) graph = std::make_unique<Graph>(kCUDA, [&] { t.step(); });
      for (int i = 0; i < 9; ++i) {
        t.feed(i);
        t.optimizer->param_groups()[0].options().set_lr(1e-2 / (1 + i));
        // Steps that are called, and weights that are written, lie between replays.
        if (i == 5) {
          const NoGradGuard no_grad;
          t.model->parameters()[0].mul_(0.5);
        }
        const bool called = !graph || i == 2 || i == 4 || i == 6;
        called ? t.step() : graph->replay();
      }
      t.loss = zeros({});  // the last called step's loss; a replay writes its own
      ends.push_back(t.all());
    }
    CHECK(ends[0] == ends[1]);
  }
}

TEST_CASE("a graph of forward and backward alone sees what the optimizer does outside") {
  std::vector<std::vector<double>> ends;
  for (const bool graphed : {false, true}) {
    manual_seed(4);
    nn::Linear model(8, 4);
    optim::Adam optimizer(model->parameters(), optim::AdamOptions(1e-2));
    const Tensor x = rand({5, 8}), y = tensor({0, 1, 2, 3, 0}, kInt64);
    const auto pass = [&] {
      optimizer.zero_grad();
      const amp::autocast region(kCUDA, kBFloat16);
      nn::functional::cross_entropy(model->forward(x), y).backward();
    };
    std::unique_ptr<Graph> graph;
    if (graphed) graph = std::make_unique<Graph>(kCUDA, pass);
    for (int i = 0; i < 4; ++i) {
      graph ? graph->replay() : pass();
      optimizer.step();
    }
    ends.push_back(model->weight.detach().to(kCPU).to(kFloat64).flatten().to_vector<double>());
  }
  CHECK(ends[0] == ends[1]);
}

TEST_CASE("a graph that is made inside a region of autocast casts the weights of each replay") {
  const amp::autocast region(kCUDA, kFloat16);
  nn::Linear model(8, 4);
  const Tensor x = rand({5, 8});
  Tensor y = model->forward(x);  // the cast is in the region's cache
  Graph graph(kCUDA, [&] { y = model->forward(x); });
  graph.replay();
  const Tensor first = y.to(kCPU).clone();
  {
    const NoGradGuard no_grad;
    model->weight.mul_(2);
  }
  graph.replay();
  CHECK_FALSE(y.to(kCPU).equal(first));
  CHECK(y.equal(model->forward(x)));
}

TEST_CASE("weights are cast by no replay but the first one after others have written them") {
  std::vector<std::vector<double>> ends;
  for (const bool graphed : {false, true}) {
    manual_seed(8);
    GraphTraining t(true);
    std::unique_ptr<Graph> graph;
    t.feed(0);
    if (graphed) graph = std::make_unique<Graph>(kCUDA, [&] { t.step(); });
    [[maybe_unused]] std::ptrdiff_t others = 0;  // casts of anything but weights
    for (int i = 0; i < 12; ++i) {
      t.feed(i);
      const NoGradGuard no_grad;
      Tensor w = t.model->parameters()[0];
      if (i == 2) w.mul_(0.5);
      if (i == 4) {  // a region outside makes a copy of its own
        const amp::autocast region(kCUDA, kFloat16);
        (void)t.model->forward(t.x);
        manual_seed(80);
      } else if (i == 3) {
        manual_seed(80);
      }
      const AutoGradMode grad(true);
#if defined(HALFTAPE_SIMT)
      simt::reset_counters();
#endif
      graph&& i != 6 && i != 7 ? graph->replay() : t.step();
#if defined(HALFTAPE_SIMT)
      if (graph && i < 6) {  // four weights and biases
        const auto launched = simt::launched_kernels();
        CAPTURE(i);
        const auto casts = std::count_if(launched.begin(), launched.end(), [](const auto& name) {
          return name.find("Same") != std::string::npos;
        });
        if (i == 1) others = casts;
        if (i == 0) CHECK(casts >= 4);
        if (i > 0) CHECK(casts == others + (i == 2 ? 1 : 0));
      }
#endif
    }
    t.loss = zeros({});
    ends.push_back(t.all());
  }
  CHECK(ends[0] == ends[1]);
}

TEST_CASE("a step that writes its weights by itself, too, is cast what it then holds") {
  // Before the region, after the update, or through a raw pointer.
  for (const int when : {0, 1, 2}) {
    CAPTURE(when);
    std::vector<std::vector<double>> ends;
    for (const bool graphed : {false, true}) {
      manual_seed(9);
      GraphTraining t(true);
      t.feed(1);
      const Tensor w = t.model->parameters()[0];
      const auto decay = [&] {
        const NoGradGuard no_grad;
        w.mul_(0.75);
      };
      const auto step = [&] {
        if (when == 0) decay();
        t.step();
        if (when == 1) decay();
      };
      if (when == 2) (void)w.storage().data_ptr();
      std::unique_ptr<Graph> graph;
      if (graphed) graph = std::make_unique<Graph>(kCUDA, step);
      for (int i = 0; i < 5; ++i) graph ? graph->replay() : step();
      ends.push_back(t.all());
    }
    CHECK(ends[0] == ends[1]);
  }
}

TEST_CASE("several steps in one graph, with batches that are gathered on the device") {
  const int steps = 3, rounds = 3;
  std::vector<std::vector<double>> ends;
  for (const bool graphed : {false, true}) {
    manual_seed(11);
    GraphTraining t(true);
    const Tensor data = rand({40, 8}), classes = randint(0, 4, {40}, kInt64);
    Tensor order = zeros({steps, 16}, kInt64), losses = zeros({steps});
    const auto several = [&] {
      for (int i = 0; i < steps; ++i) {
        t.x = data.index_select(0, order[i]);
        t.y = classes.index_select(0, order[i]);
        t.step();
        losses[i].copy_(t.loss.detach());
      }
    };
    std::unique_ptr<Graph> graph;
    if (graphed) graph = std::make_unique<Graph>(kCUDA, several);
    std::vector<double> seen;
    for (int round = 0; round < rounds; ++round) {
      order.copy_(((arange(0, steps * 16) * 7 + round) % 40).reshape({steps, 16}));
      graph ? graph->replay() : several();
      for (double v : losses.to(kCPU).to(kFloat64).to_vector<double>()) seen.push_back(v);
    }
    for (double v : t.all()) seen.push_back(v);
    ends.push_back(seen);
  }
  CHECK(ends[0] == ends[1]);
  CHECK(ends[0][0] != ends[0][steps]);
}

TEST_CASE("two graphs of the same weights see what the other has made of them") {
  std::vector<std::vector<double>> ends;
  for (const bool graphed : {false, true}) {
    manual_seed(10);
    GraphTraining t(false);
    t.feed(1);
    Tensor out = zeros({16, 4});
    const auto step = [&] { t.step(); };
    const auto evaluate = [&] {
      const amp::autocast region(kCUDA, kFloat16);
      out.copy_(t.model->forward(t.x).detach());
    };
    std::vector<Graph> graphs;
    if (graphed) {
      graphs.emplace_back(kCUDA, step);
      graphs.emplace_back(kCUDA, evaluate);
      graphs.emplace_back(kCUDA, step);
    }
    std::vector<double> seen;
    for (int i = 0; i < 6; ++i) {
      if (graphed) {
        graphs[i % 2 == 0 ? 0 : 2].replay();
        graphs[1].replay();
      } else {
        step();
        evaluate();
      }
      for (double v : out.to(kCPU).to(kFloat64).flatten().to_vector<double>()) seen.push_back(v);
    }
    ends.push_back(seen);
  }
  CHECK(ends[0] == ends[1]);
}

TEST_CASE("an optimizer that loads a state goes on with it in the graph") {
  std::vector<std::vector<double>> ends;
  for (const bool graphed : {false, true}) {
    manual_seed(6);
    GraphTraining t(true);
    t.feed(0);
    t.step();
    const optim::OptimizerState saved = t.optimizer->state_dict();
    std::unique_ptr<Graph> graph;
    if (graphed) graph = std::make_unique<Graph>(kCUDA, [&] { t.step(); });
    for (int i = 0; i < 4; ++i) {
      t.feed(i % 2);
      if (i == 2) t.optimizer->load_state_dict(saved);
      graph ? graph->replay() : t.step();
    }
    ends.push_back(t.all());
  }
  CHECK(ends[0] == ends[1]);
}

TEST_CASE("making a graph leaves weights, state and random numbers as they were") {
  manual_seed(1);
  GraphTraining t(true);
  t.feed(0);
  t.step();
  const auto before = t.all();
  const Generator random = get_generator(kCUDA);
  const Graph graph(kCUDA, [&] { t.step(); });
  const auto after = t.all();
  // All but the loss, which the captured step has not computed yet.
  CHECK(std::vector(before.begin() + 1, before.end()) ==
        std::vector(after.begin() + 1, after.end()));
  CHECK(get_generator(kCUDA).offset == random.offset);
  CHECK(graph.size() > 10);
  MESSAGE("nodes of a replay: ", graph.size());
}

#if defined(HALFTAPE_SIMT)
TEST_CASE("a replay reads nothing back, waits for nothing and allocates nothing") {
  GraphTraining t(true);
  t.feed(0);
  Graph graph(kCUDA, [&] { t.step(); });
  graph.replay();
  simt::reset_counters();
  for (int i = 0; i < 5; ++i) graph.replay();
  const simt::Counters c = simt::counters();
  CHECK(c.graph_launches == 5);
  CHECK(c.device_to_host == 0);
  CHECK(c.synchronisations == 0);
  CHECK(c.allocations == 0);
  CHECK(c.host_to_device <= 5);  // the offset of the random stream
}

TEST_CASE("a captured step is the same when the device runs late") {
  const auto now = followed(true, true, 5);
  simt::Settings s = simt::settings;
  s.mode = simt::Mode::Deferred;
  const simt::With late(s);
  CHECK(followed(true, true, 5) == now);
}
#endif

TEST_CASE("a graph that outlives the optimizer of its step says so at the next replay") {
  GraphTraining t(false);
  t.feed(0);
  Graph graph(kCUDA, [&] { t.step(); });
  graph.replay();
  t.optimizer.reset();
  CHECK_THROWS_WITH_AS(graph.replay(), doctest::Contains("the optimizer of its step is gone"),
                       Error);
}
