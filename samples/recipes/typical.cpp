// The typical loop: forward in float16 under autocast, the loss scaled before backward, the step
// left to the scaler. Beside it, the same loop in float32.
#include "recipe.h"

using namespace recipe;

namespace {

struct Result {
  double accuracy = 0, scale = 0;
  int skips = 0;
};

Result train(bool mixed) {
  const Set train = train_set();
  nn::Sequential model = make_model();
  optim::AdamW optimizer(model->parameters(), optim::AdamWOptions(3e-3));
  amp::GradScaler scaler({.init_scale = 0x1p30, .growth_interval = 50, .enabled = mixed});
  Result result;
  for (int step = 0; step < 400; ++step) {
    const Set batch = train.batch(step, 64);
    optimizer.zero_grad();
    Tensor loss;
    {
      const amp::autocast region(kCPU, kFloat16, mixed);
      loss = cross_entropy(model->forward(batch.images), batch.labels);
    }
    scaler.scale(loss).backward();
    const amp::StepResult step_result = scaler.step(optimizer);
    scaler.update();
    result.skips += step_result.found_inf();  // asking waits for the device; leave it out if unused
  }
  result.accuracy = accuracy(model, test_set());
  result.scale = scaler.get_scale();
  return result;
}

}  // namespace

int main() {
  const Result single = train(false), mixed = train(true);
  std::printf("float32          accuracy %.1f %%\n", single.accuracy);
  std::printf(
      "float16 and amp  accuracy %.1f %%, %d steps skipped while the scale came down to %g\n",
      mixed.accuracy, mixed.skips, mixed.scale);
  expect(single.accuracy > 93, "float32 learns the digits");
  expect(mixed.accuracy > single.accuracy - 1.5, "float16 learns them as well");
  expect(mixed.skips > 0, "a first scale of 2^30 is too large for float16");
  return verdict();
}
