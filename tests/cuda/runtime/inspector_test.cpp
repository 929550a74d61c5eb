// The Inspector on a GPU: it counts on the device, in called steps and in a Graph, and waits only
// when it is asked.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <thread>

#if defined(HALFTAPE_SIMT)
#include "runtime/device.h"
#include "settings.h"
#endif

using namespace halftape;
using amp::ClassCounts;
using amp::Inspector;
using amp::LedgerPlace;

namespace {

/// AMP training in float16, which overflows at step 3.
struct InspectedTraining {
  nn::Sequential model{
      {"fc1", nn::Linear(8, 32)}, {"relu", nn::ReLU()}, {"fc2", nn::Linear(32, 4)}};
  optim::AdamW optimizer{model->parameters(), optim::AdamWOptions(1e-2)};
  amp::GradScaler scaler{{.init_scale = 1024, .growth_interval = 2}};
  Tensor x = zeros({16, 8}), y = zeros({16}, kInt64), weight = ones({});

  void feed(int step) {
    x.copy_((arange(0, 128).to(kFloat32) * (0.1 + 0.05 * step)).sin().reshape({16, 8}));
    weight.fill_(step == 3 ? 1e6 : 1.0);
    y.copy_((arange(0, 16) * (step + 1)).remainder(4));
  }
  Tensor loss() {
    const amp::autocast region(kCUDA, kFloat16);
    return nn::functional::cross_entropy(model->forward(x), y) * weight;
  }
  void step() {
    optimizer.zero_grad();
    scaler.scale(loss()).backward();
    scaler.step(optimizer);
    scaler.update();
  }
  std::vector<double> state() const {
    std::vector<double> all{scaler.get_scale()};
    for (const Tensor& p : model->parameters())
      for (const double v : p.detach().to(kCPU).flatten().to(kFloat64).to_vector<double>())
        all.push_back(v);
    return all;
  }
};

/// What an inspector found in eight steps.
struct Found {
  std::vector<double> state;
  std::vector<LedgerPlace> places;
  std::vector<ClassCounts> totals;
  std::vector<int64_t> skips;
  std::vector<double> scales;
  std::string first;
  bool operator==(const Found&) const = default;
};

Found found(bool graphed, int64_t every) {
  manual_seed(3);
  InspectedTraining t;
  Inspector inspector(*t.model, t.scaler, {.every = every});
  t.feed(0);
  std::optional<Graph> graph;
  if (graphed)
    graph.emplace(kCUDA, [&] {
      t.step();
      inspector.step();
    });
  for (int i = 0; i < 8; ++i) {
    t.feed(i);
    if (graph) {
      graph->replay();
    } else {
      t.step();
      inspector.step();
    }
  }
  CHECK(inspector.steps() == 8);
  Found f{t.state(), inspector.places(), inspector.totals(), {}, {}, {}};
  for (const amp::Overflow& o : inspector.overflows()) {
    f.skips.push_back(o.step);
    f.scales.push_back(o.scale);
    f.first = o.op + " " + o.parameter;
  }
  return f;
}

}  // namespace

TEST_CASE("on a GPU, too, a step that the scaler has applied was not skipped") {
  const nn::Linear trained(1, 1), other(1, 1);
  const nn::Sequential model{trained, other};
  {
    const NoGradGuard no_grad;
    other->weight.fill_(0);
  }
  optim::SGD optimizer(trained->parameters(), optim::SGDOptions(0.1));
  amp::GradScaler scaler(amp::GradScalerOptions::fixed(1));
  Inspector inspector(*model, scaler);
  const auto loss = [&] {
    return trained->forward(ones({1, 1})).sum() + (other->forward(full({1, 1}, 1e30)) * 1e10).sum();
  };
  scaler.scale(loss()).backward();
  REQUIRE(std::isinf(other->weight.grad().item<double>()));
  CHECK(scaler.step(optimizer).applied());
  scaler.update();
  inspector.step(loss);
  CHECK(inspector.overflows().empty());
}

TEST_CASE("on a GPU the Inspector finds the same in called steps and in replays of a Graph") {
  const Found called = found(false, 0), sampled = found(false, 3), replayed = found(true, 0);
  CHECK(called == sampled);
  CHECK(called.state == replayed.state);
  CHECK(called.skips == replayed.skips);
  CHECK(called.scales == replayed.scales);
  CHECK(called.first == replayed.first);
  // A Graph casts weights before it is replayed: their copies are no values of its step.
  std::vector<LedgerPlace> cast_before;
  for (size_t i = 0; i < called.places.size(); ++i) {
    const auto same = std::find(replayed.places.begin(), replayed.places.end(), called.places[i]);
    if (same == replayed.places.end())
      cast_before.push_back(called.places[i]);
    else
      CHECK(called.totals[i] ==
            replayed.totals[static_cast<size_t>(same - replayed.places.begin())]);
  }
  for (const LedgerPlace& p : cast_before) CHECK(p.op == "to");
  CHECK(called.skips == std::vector<int64_t>{3});
  CHECK(called.scales == std::vector<double>{2048});  // it grew after two steps
  CHECK(called.first == "cross_entropy fc1.weight");
  manual_seed(3);
  InspectedTraining plain;
  for (int i = 0; i < 8; ++i) {
    plain.feed(i);
    plain.step();
  }
  CHECK(plain.state() == called.state);
  bool seen = false;
  for (size_t i = 0; i < called.places.size(); ++i) {
    const LedgerPlace& p = called.places[i];
    if (p.kind != LedgerPlace::Kind::Gradient || p.module != "fc1") continue;
    seen = true;
    CHECK(p.dtype == kFloat16);
    CHECK(called.totals[i].total() == 8 * 16 * 32);
    CHECK(called.totals[i].nonfinite() > 0);
  }
  CHECK(seen);
}

TEST_CASE("on a GPU samples, shadows and replays are those of the batch") {
  manual_seed(3);
  InspectedTraining t;
  Inspector inspector(*t.model, t.scaler, {.every = 2, .shadow_every = 4});
  for (int i = 0; i < 5; ++i) {
    t.feed(i);
    t.step();
    inspector.step([&] { return t.loss(); });
  }
  REQUIRE(inspector.last_overflow());
  REQUIRE(inspector.last_overflow()->largest_scale_that_passes);
  const double passes = *inspector.last_overflow()->largest_scale_that_passes;
  CHECK(passes > 0);
  CHECK(passes < 2048);
  int shadows = 0;
  for (const amp::LedgerRow& row : inspector.rows()) {
    CHECK(row.step % 2 == 0);
    CHECK(row.shadow.has_value() == (row.step % 4 == 0));
    shadows += row.shadow.has_value();
    if (row.error) CHECK(*row.error < 0.05);
    if (row.shadow) CHECK(row.seen.total() == row.shadow->total());
  }
  CHECK(shadows > 4);
}

TEST_CASE("in a Graph the Inspector adds a kernel for each array, and two for the step") {
  InspectedTraining t, plain;
  t.feed(0), plain.feed(0);
  Inspector inspector(*t.model, t.scaler, {.every = 0});
  Graph graph(kCUDA, [&] {
    t.step();
    inspector.step();
  });
  int64_t plain_size = 0;
  std::thread([&] {  // where no inspector is
    const Graph without(kCUDA, [&] { plain.step(); });
    plain_size = static_cast<int64_t>(without.size());
  })
      .join();
  graph.replay();
  const auto events = static_cast<int64_t>(inspector.places().size());
  const auto added = static_cast<int64_t>(graph.size()) - plain_size;
  MESSAGE("nodes of a replay: ", plain_size, ", with an inspector of ", events, " places ",
          graph.size());
  CHECK(added <= events + 6);  // and what the watching keeps from being joined
#if defined(HALFTAPE_SIMT)
  simt::reset_counters();
  for (int i = 0; i < 5; ++i) graph.replay();
  CHECK(simt::counters().device_to_host == 0);
  CHECK(simt::counters().synchronisations == 0);
  CHECK(simt::counters().allocations == 0);
#endif
  CHECK_THROWS_WITH(Graph(kCUDA, [&] { t.step(), inspector.step([&] { return t.loss(); }); }),
                    doctest::Contains("step() takes no closure"));
}
