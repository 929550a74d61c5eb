// Two models, two losses, two optimizers, one scaler: each optimizer skips by itself, and the scale
// moves once, in the one update() at the end.
#include "recipe.h"

using namespace recipe;

int main() {
  const Set train = train_set();
  nn::Sequential first = make_model(1), second = make_model(2);
  optim::AdamW optimizer_1(first->parameters(), optim::AdamWOptions(3e-3));
  optim::SGD optimizer_2(second->parameters(), optim::SGDOptions(0.1));
  amp::GradScaler scaler({.init_scale = 1024});

  constexpr int kBroken = 10;  // the step at which the first model's gradients overflow
  for (int step = 0; step < 100; ++step) {
    const Set batch = train.batch(step, 64);
    optimizer_1.zero_grad();
    optimizer_2.zero_grad();
    Tensor loss_1, loss_2;
    {
      const amp::autocast region(kCPU, kFloat16);
      const Tensor a = first->forward(batch.images), b = second->forward(batch.images);
      loss_1 = cross_entropy(a + b * 0.1, batch.labels);  // both losses use both models
      loss_2 = cross_entropy(b - a * 0.1, batch.labels);
    }
    scaler.scale(loss_1).backward({}, /*retain_graph=*/true);
    scaler.scale(loss_2).backward();
    if (step == kBroken) {
      const NoGradGuard no_grad;
      first->parameters()[0].grad()[0][0] = INFINITY;
    }
    // Scaling does not mind which optimizers unscale by hand and which leave it to step().
    scaler.unscale_(optimizer_1);
    const Tensor before_1 = weights(first).clone(), before_2 = weights(second).clone();
    const amp::StepResult step_1 = scaler.step(optimizer_1), step_2 = scaler.step(optimizer_2);
    const double scale = scaler.get_scale();
    scaler.update();
    if (step != kBroken) continue;
    std::printf("step %d: first %s, second %s, scale %g -> %g\n", step,
                step_1.applied() ? "applied" : "skipped", step_2.applied() ? "applied" : "skipped",
                scale, scaler.get_scale());
    expect(!step_1.applied() && weights(first).equal(before_1),
           "the broken model keeps its weights");
    expect(step_2.applied() && !weights(second).equal(before_2), "the other one moves");
    expect(scaler.get_scale() == scale / 2, "one overflow halves the scale once");
  }
  std::printf("accuracies %.1f and %.1f %%\n", accuracy(first, test_set()),
              accuracy(second, test_set()));
  expect(accuracy(first, test_set()) > 85 && accuracy(second, test_set()) > 85, "both learn");
  return verdict();
}
