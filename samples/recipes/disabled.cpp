// enabled=false: the same loop serves float32. Every call passes through, and the weights have the
// bits of a loop that knows nothing of amp.
#include "recipe.h"

using namespace recipe;

namespace {

Tensor plain() {
  const Set train = train_set();
  nn::Sequential model = make_model();
  optim::AdamW optimizer(model->parameters(), optim::AdamWOptions(3e-3));
  for (int step = 0; step < 100; ++step) {
    const Set batch = train.batch(step, 64);
    optimizer.zero_grad();
    cross_entropy(model->forward(batch.images), batch.labels).backward();
    nn::utils::clip_grad_norm_(model->parameters(), 1);
    optimizer.step();
  }
  return weights(model);
}

Tensor with_amp(bool enabled) {
  const Set train = train_set();
  nn::Sequential model = make_model();
  optim::AdamW optimizer(model->parameters(), optim::AdamWOptions(3e-3));
  amp::GradScaler scaler({.enabled = enabled});
  for (int step = 0; step < 100; ++step) {
    const Set batch = train.batch(step, 64);
    optimizer.zero_grad();
    Tensor loss;
    {
      const amp::autocast region(kCPU, kFloat16, enabled);
      loss = cross_entropy(model->forward(batch.images), batch.labels);
    }
    scaler.scale(loss).backward();
    scaler.unscale_(optimizer);
    nn::utils::clip_grad_norm_(model->parameters(), 1);
    scaler.step(optimizer);
    scaler.update();
  }
  expect(scaler.get_scale() == (enabled ? 65536 : 1), "the scale of a disabled scaler is 1");
  return weights(model);
}

}  // namespace

int main() {
  const Tensor expected = plain(), off = with_amp(false), on = with_amp(true);
  std::printf("disabled: %.1e from the plain loop; enabled: %.1e\n", distance(off, expected),
              distance(on, expected));
  expect(off.equal(expected), "disabled, every bit is the plain loop's");
  expect(!on.equal(expected), "enabled, float16's rounding shows");
  return verdict();
}
