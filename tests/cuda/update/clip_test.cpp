// Clipping in a captured step: it costs no launch of its own, and replays leave the bits of calls.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "halftape/tests/support/message.h"
#include "halftape/tests/support/optimizers.h"

using namespace halftape;
using namespace halftape::testing;

namespace {

using Make = std::function<std::unique_ptr<optim::Optimizer>(const std::vector<Tensor>&)>;

/// Weights decay, biases do not.
std::unique_ptr<optim::Optimizer> of_groups(const std::vector<Tensor>& p) {
  const auto group = [](std::vector<Tensor> parameters, double decay) {
    return optim::OptimizerParamGroup(
        std::move(parameters),
        std::make_unique<optim::AdamWOptions>(optim::AdamWOptions(1e-2).weight_decay(decay)));
  };
  return std::make_unique<optim::AdamW>(
      std::vector{group({p[0], p[2]}, 0.1), group({p[1], p[3]}, 0)});
}
const std::vector<std::pair<std::string, Make>>& clipped_optimizers() {
  static const auto all = [] {
    std::vector<std::pair<std::string, Make>> list{{"AdamW of groups", of_groups}};
    for (const OptimizerKind& kind : rule_optimizers())
      list.emplace_back(kind.name, [&](const std::vector<Tensor>& p) { return kind.make(p); });
    return list;
  }();
  return all;
}

constexpr double kMost = 0.05;  // less than every norm here

/// float16 with a scaler, else bfloat16, with weights in bfloat16 if wanted.
struct Training {
  nn::Sequential model{nn::Linear(8, 32), nn::ReLU(), nn::Linear(32, 4)};
  std::optional<amp::GradScaler> scaler;
  std::unique_ptr<optim::Optimizer> optimizer;
  double order;
  Tensor x = zeros({16, 8}), y = zeros({16}, kInt64), weight = ones({}), loss, norm;

  Training(const Make& of, bool scaled, bool low_weights = false, double norm_type = 2)
      : order(norm_type) {
    if (scaled) scaler.emplace(amp::GradScalerOptions{.init_scale = 1024, .growth_interval = 4});
    if (low_weights) model->to(kBFloat16);
    optimizer = of(model->parameters());
  }
  void feed(int step) {
    x.copy_((arange(0, 128).to(kFloat32) * (0.1 + 0.05 * step)).sin().reshape({16, 8}));
    weight.fill_(step == 3 ? 1e6 : 1.0);  // too much for gradients in float16
    if (step == 6) x.mul_(1e30);          // the loss is not finite
    y.copy_((arange(0, 16) * (step + 1)).remainder(4));
  }
  void step() {
    optimizer->zero_grad();
    {
      const amp::autocast region(kCUDA, scaler ? kFloat16 : kBFloat16);
      loss = nn::functional::cross_entropy(model->forward(x), y) * weight;
    }
    if (scaler) {
      scaler->scale(loss).backward();
      scaler->unscale_(*optimizer);
    } else {
      loss.backward();
    }
    norm = nn::utils::clip_grad_norm_(model->parameters(), kMost, order);
    if (!scaler) return (void)optimizer->step();
    scaler->step(*optimizer);
    scaler->update();
  }
  /// Everything that a step leaves behind.
  std::vector<double> all() const {
    std::vector<double> values{loss.item<double>(), norm.item<double>()};
    const auto add = [&](const Tensor& t) {
      for (double v : t.detach().to(kCPU).to(kFloat64).flatten().to_vector<double>())
        values.push_back(v);
    };
    for (const Tensor& p : model->parameters()) {
      add(p), add(p.grad());
      for (const auto& [name, a] : optimizer->state_of(p)) add(Tensor(a));
    }
    if (scaler)
      for (const auto& [name, value] : scaler->state_dict()) values.push_back(value);
    return values;
  }
  double grad_norm() const {
    double sum = 0;
    for (const Tensor& p : model->parameters())
      for (double v : p.grad().to(kCPU).to(kFloat64).flatten().to_vector<double>()) sum += v * v;
    return std::sqrt(sum);
  }
};

bool same(const std::vector<double>& a, const std::vector<double>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

}  // namespace

TEST_CASE("replays of a step that clips leave what calls of it leave, also after an overflow") {
  struct Case {
    bool scaled, low_weights;
    double order;
  };
  for (const auto& optimizer : clipped_optimizers()) {
    for (const Case& c :
         {Case{true, false, 2}, {true, false, 9}, {false, false, 2}, {false, true, 1}}) {
      CAPTURE(optimizer.first);
      CAPTURE(c.scaled);
      CAPTURE(c.order);
      std::vector<std::vector<double>> left[2];
      for (const bool graphed : {false, true}) {
        manual_seed(3);
        Training t(optimizer.second, c.scaled, c.low_weights, c.order);
        t.feed(0);
        std::optional<Graph> graph;
        if (graphed) graph.emplace(kCUDA, [&] { t.step(); });
        for (int i = 0; i < 8; ++i) {
          t.feed(i);
          graph ? graph->replay() : t.step();
          left[graphed].push_back(t.all());
          if (i == 0 && c.order == 2) {
            CHECK(left[graphed][0][1] > 2 * kMost);
            CHECK(t.grad_norm() == doctest::Approx(kMost).epsilon(1e-3));
          }
        }
      }
      for (size_t i = 0; i < 8; ++i) {
        CAPTURE(i);
        CHECK(same(left[0][i], left[1][i]));
      }
      CHECK(std::isfinite(left[0][3][1]) == !c.scaled);  // the overflow was there
      CHECK(std::isfinite(left[0][6][0]) == !c.scaled);  // and the loss that is not finite
      CHECK(left[0][5] != left[0][4]);
    }
  }
}

TEST_CASE("several clipped steps in one graph, between which nothing is joined") {
  std::vector<std::vector<double>> ends;
  for (const bool graphed : {false, true}) {
    for (const bool scaled : {false, true}) {
      manual_seed(3);
      Training t([](const auto& p) { return optimizer_kind("AdamW").make(p); }, scaled);
      t.feed(0);
      const auto steps = [&] {
        for (int i = 0; i < 3; ++i) t.step();
      };
      std::optional<Graph> graph;
      if (graphed) graph.emplace(kCUDA, steps);
      for (int i = 0; i < 2; ++i) {
        t.feed(i);
        graph ? graph->replay() : steps();
      }
      ends.push_back(t.all());
    }
  }
  CHECK(same(ends[0], ends[2]));
  CHECK(same(ends[1], ends[3]));
}

TEST_CASE("an error for a norm that is not finite is refused in a captured step, by name") {
  manual_seed(3);
  Training t([](const auto& p) { return optimizer_kind("SGD").make(p); }, false);
  t.feed(0);
  const auto step = [&] {
    t.optimizer->zero_grad();
    nn::functional::cross_entropy(t.model->forward(t.x), t.y).backward();
    (void)nn::utils::clip_grad_norm_(t.model->parameters(), 1.0, 2, true);
    t.optimizer->step();
  };
  step();
  const auto before = t.model->parameters()[0].detach().to(kCPU).to_vector<float>();
  CHECK(message([&] { const Graph g(kCUDA, step); }).find("item()") != std::string::npos);
  CHECK(t.model->parameters()[0].detach().to(kCPU).to_vector<float>() == before);
}
