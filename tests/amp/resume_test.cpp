// A run that is stopped after any step and resumed from its saved state is the run that was not.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <optional>

using namespace halftape;

namespace {

constexpr int kSteps = 40;

struct Checkpoint {
  std::vector<Tensor> weights;
  optim::OptimizerState optimizer;
  amp::GradScaler::StateDict scaler;
};

/// A model, its optimizer and scaler; the batch of step t depends on t alone.
class Run {
 public:
  explicit Run(std::optional<Dtype> precision) : precision_(precision) {}

  void steps(int from, int to) {
    for (int t = from; t < to; ++t) step(t);
  }
  Checkpoint save() const {
    Checkpoint c{{}, optimizer_.state_dict(), scaler_.state_dict()};
    for (const Tensor& p : model_->parameters()) c.weights.push_back(p.detach().clone());
    return c;
  }
  void load(const Checkpoint& c) {
    for (size_t i = 0; i < c.weights.size(); ++i)
      model_->parameters()[i].detach().copy_(c.weights[i]);
    optimizer_.load_state_dict(c.optimizer);
    scaler_.load_state_dict(c.scaler);
  }
  bool same(const Checkpoint& other) const {
    const Checkpoint mine = save();
    bool same = mine.scaler == other.scaler && mine.optimizer.groups == other.optimizer.groups;
    for (size_t i = 0; i < mine.weights.size(); ++i) {
      same &= mine.weights[i].equal(other.weights[i]);
      for (const auto& [key, value] : mine.optimizer.state[i])
        same &= Tensor(value).equal(Tensor(other.optimizer.state[i].at(key)));
    }
    return same;
  }

 private:
  void step(int t) {
    manual_seed(1000 + static_cast<uint64_t>(t));
    const Tensor x = randn({4, 5}), y = randn({4, 2});
    optimizer_.zero_grad();
    Tensor loss;
    {
      const amp::autocast region(kCPU, precision_.value_or(kBFloat16), precision_.has_value());
      loss = mse_loss(model_->forward(x), y);
    }
    scaler_.scale(t == 23 ? loss * std::numeric_limits<double>::quiet_NaN() : loss).backward();
    // Overflows in a row, with good steps between: hysteresis is in every state on the way.
    if (t % 9 == 4 || t % 9 == 5 || t == 28)
      model_->parameters()[1].grad().fill_(std::numeric_limits<double>::infinity());
    scaler_.step(optimizer_);
    scaler_.update();
  }

  std::optional<Dtype> precision_;
  nn::Sequential model_{nn::Linear(5, 6), nn::Tanh(), nn::Linear(6, 2)};
  optim::AdamW optimizer_{model_->parameters(), optim::AdamWOptions(0.01)};
  amp::GradScaler scaler_{{.init_scale = 1024,
                           .growth_interval = 3,
                           .min_scale = 64,
                           .max_scale = 8192,
                           .hysteresis = 2,
                           .refill = Hysteresis::RefilledByGrowth}};
};

}  // namespace

TEST_CASE("resuming after any of 39 steps gives the bits of the run that never stopped") {
  const std::vector<std::optional<Dtype>> precisions = {{}, kFloat16, kBFloat16};
  for (const auto& precision : precisions) {
    manual_seed(1);
    Run whole(precision);
    const Checkpoint start = whole.save();
    whole.steps(0, kSteps);
    const Checkpoint end = whole.save();
    CHECK(end.scaler.at("_skips") >= 9);
    CHECK(end.scaler.at("_growths") > 0);
    CHECK(end.scaler.at("_backoffs") > 0);
    CHECK(end.scaler.at("_bad_losses") == 1);
    manual_seed(1);
    Run going(precision);
    REQUIRE(going.same(start));
    for (int stop = 1; stop < kSteps; ++stop) {
      CAPTURE(stop);
      going.steps(stop - 1, stop);
      Run resumed(precision);  // other weights, until the state is loaded
      resumed.load(going.save());
      resumed.steps(stop, kSteps);
      CHECK(resumed.same(end));
    }
  }
}

TEST_CASE("a state that is loaded between step() and update() drops the verdict on the step") {
  const Tensor w = ones({2}, requires_grad());
  optim::SGD optimizer({w}, optim::SGDOptions(1.0));
  amp::GradScaler scaler({.init_scale = 8, .growth_interval = 1});
  const auto step = [&] {
    optimizer.zero_grad();
    scaler.scale(w.sum()).backward();
    scaler.step(optimizer);
  };
  step();
  scaler.load_state_dict(scaler.state_dict());
  CHECK(scaler.get_scale() == 8);
  CHECK_THROWS_WITH_AS(scaler.update(), doctest::Contains("nothing was checked"), Error);
  step();
  scaler.update();
  CHECK(scaler.get_scale() == 16);
}
