// Accumulation: one step from the gradients of several micro-batches. The scale must be the same
// for all of them, so update() comes once, after the step.
#include "recipe.h"

using namespace recipe;

namespace {

constexpr int kSteps = 100, kBatch = 128;

/// The weights after training with batches cut into `parts`.
Tensor train(int parts) {
  const Set train = train_set();
  nn::Sequential model = make_model();
  optim::SGD optimizer(model->parameters(), optim::SGDOptions(0.1));
  amp::GradScaler scaler({.init_scale = 1024});
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    for (int part = 0; part < parts; ++part) {
      const Set micro = train.batch(step * parts + part, kBatch / parts);
      Tensor loss;
      {
        const amp::autocast region(kCPU, kFloat16);
        // The mean over the batch is the mean of the parts' means.
        loss = cross_entropy(model->forward(micro.images), micro.labels) / parts;
      }
      scaler.scale(loss).backward();  // adds to the gradients, still scaled
    }
    scaler.step(optimizer);
    scaler.update();
  }
  return weights(model);
}

}  // namespace

int main() {
  const Tensor whole = train(1);
  for (const int parts : {2, 4, 8}) {
    const double apart = distance(train(parts), whole);
    std::printf("%d micro-batches: weights %.1e from those of whole batches\n", parts, apart);
    expect(apart < 2e-3, "only float16's rounding tells the two apart");
  }
  return verdict();
}
