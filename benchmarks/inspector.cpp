// What amp::Inspector costs: a training step of a small classifier in float16 with a
// GradScaler, without it, with counts at every step, and with a sample of exponents at every 20th.
#include <halftape/halftape.h>

#include <optional>
#include <string>

#include "harness.h"

using namespace halftape;

namespace {

constexpr int kSteps = 200;  // of a run

class Training {
 public:
  explicit Training(int64_t hidden)
      : model_(nn::Linear(64, hidden), nn::ReLU(), nn::Linear(hidden, hidden), nn::ReLU(),
               nn::Linear(hidden, 10)),
        optimizer_(model_->parameters(), optim::AdamOptions(1e-3)) {}

  /// Without options: without an inspector.
  void run(const std::optional<amp::InspectorOptions>& options) {
    std::optional<amp::Inspector> inspector;
    if (options) inspector.emplace(*model_, scaler_, *options);
    for (int i = 0; i < kSteps; ++i) {
      optimizer_.zero_grad();
      Tensor loss;
      {
        const amp::autocast region(kCPU, kFloat16);
        loss = nn::functional::cross_entropy(model_->forward(x_), y_);
      }
      scaler_.scale(loss).backward();
      scaler_.step(optimizer_);
      scaler_.update();
      if (inspector) inspector->step();
    }
  }

 private:
  nn::Sequential model_;
  optim::Adam optimizer_;
  amp::GradScaler scaler_;
  Tensor x_ = randn({128, 64}), y_ = randint(10, {128});
};

}  // namespace

int main(int argc, char** argv) {
  bench::Table table("Halftape", argc, argv);
  set_num_threads(table.threads());
  Training small(64), middle(256), large(1024);
  const auto add = [&](const std::string& name, Training& training) {
    table.add(
        name, [&] { training.run({}); }, kSteps);
    table.add(
        name + ", values left out",
        [&] { training.run(amp::InspectorOptions{.every = 0, .values = false}); }, kSteps);
    table.add(
        name + ", counts", [&] { training.run(amp::InspectorOptions{.every = 0}); }, kSteps);
    table.add(
        name + ", counts and a sample", [&] { training.run(amp::InspectorOptions{}); }, kSteps);
  };
  add("64-64-64-10", small);
  add("64-256-256-10", middle);
  add("64-1024-1024-10", large);
  table.run();
}
