// The optimizer on its own thread: RoundPipe's loop. Micro-batches run forward and backward in
// float16 while a worker unscales, checks, clips and applies the gradients of the batch before.
//
//   build/ci/bin/recipe_async_optimizer
//
// Three runs: every step waited for; a step in flight with prompt verdicts; and with late ones, as
// in RoundPipe. The first scale is far too large, so that all of them have to skip some steps.
// Ends with "all as it should be" after about a second; exits with 1 when it is not.
#include <cmath>
#include <numbers>

#include "recipe.h"

using namespace recipe;

namespace {

constexpr int kSteps = 300, kMicroBatches = 4;

struct Result {
  double first = 0, last = 0;  // mean loss of the first and of the last 20 batches
  int skips = 0;
  double scale = 0;
  std::vector<double> weights;
};

/// y = sin(3x₀)·x₁ on a square; x (32, 2), y (32, 1).
std::pair<Tensor, Tensor> micro_batch() {
  const Tensor x = rand({32, 2}) * 2 - 1;
  return {x, sin(x.slice(1, 0, 1) * 3) * x.slice(1, 1, 2)};
}

Result train(bool is_async, amp::ScaleDelivery delivery) {
  manual_seed(1);
  nn::Sequential model{nn::Linear(2, 64), nn::Tanh(), nn::Linear(64, 64), nn::Tanh(),
                       nn::Linear(64, 1)};
  optim::AsyncOptimizer optimizer(
      std::make_unique<optim::AdamW>(model->parameters(), optim::AdamWOptions(3e-3)));
  amp::AsyncGradScaler scaler({.init_scale = 0x1p24, .growth_interval = 100}, delivery);

  Result result;
  std::vector<optim::AsyncStep> steps;
  for (int step = 0; step < kSteps; ++step) {
    // The learning rate goes with the step by value: setting it here does not touch the step that
    // is still running.
    const double lr = 3e-3 * 0.5 * (1 + std::cos(std::numbers::pi * step / kSteps));
    optimizer.param_groups()[0].options().set_lr(lr);

    double mean = 0;
    for (int m = 0; m < kMicroBatches; ++m) {
      const auto [x, y] = micro_batch();
      Tensor loss;
      {
        const amp::autocast region(kCPU, kFloat16);
        loss = mse_loss(model->forward(x), y) / kMicroBatches;
      }
      mean += loss.item<double>();
      scaler.scale(loss).backward();  // the scale is needed here, a forward pass after update()
    }
    if (step < 20) result.first += mean / 20;
    if (step >= kSteps - 20) result.last += mean / 20;

    steps.push_back(scaler.step(optimizer, {.is_async = is_async, .max_norm = 1.0}));
    scaler.update();
  }
  optimizer.synchronize();  // the model has the newest weights

  // Asking for a verdict waits for it, so ask after the loop.
  for (const optim::AsyncStep& step : steps) result.skips += step.found_inf();
  result.scale = scaler.get_scale(true);
  for (const Tensor& p : model->parameters())
    for (const double w : p.detach().to_vector()) result.weights.push_back(w);
  return result;
}

}  // namespace

int main() {
  const Result sync = train(false, amp::ScaleDelivery::Prompt);
  const Result prompt = train(true, amp::ScaleDelivery::Prompt);
  const Result late = train(true, amp::ScaleDelivery::Late);
  std::printf("%-22s %10s %10s %6s %10s\n", "", "first loss", "last loss", "skips", "scale");
  auto row = [](const char* name, const Result& r) {
    std::printf("%-22s %10.4f %10.5f %6d %10g\n", name, r.first, r.last, r.skips, r.scale);
  };
  row("waited for", sync);
  row("in flight, prompt", prompt);
  row("in flight, late", late);

  for (const Result* r : {&sync, &prompt, &late})
    expect(r->last < r->first / 10, "the loss falls to a tenth");
  expect(sync.weights != prompt.weights, "weights that are one step old lead elsewhere");
  expect(prompt.skips > 0 && late.skips >= prompt.skips, "late verdicts save no skip");
  expect(train(true, amp::ScaleDelivery::Prompt).weights == prompt.weights,
         "two runs give the same bits, however the threads ran");
  return verdict();
}
