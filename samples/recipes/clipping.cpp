// Clipping: gradients are unscaled first, so that the norm that is clipped is the true one.
#include "recipe.h"

using namespace recipe;

namespace {

Tensor loss_of(nn::Sequential& model, const Set& batch, bool mixed) {
  const amp::autocast region(kCPU, kFloat16, mixed);
  return cross_entropy(model->forward(batch.images), batch.labels);
}

}  // namespace

int main() {
  constexpr double kMaxNorm = 0.1;
  const Set train = train_set();
  nn::Sequential model = make_model();
  optim::SGD optimizer(model->parameters(), optim::SGDOptions(0.5).momentum(0.9));
  amp::GradScaler scaler;

  double worst = 0, largest = 0;
  for (int step = 0; step < 100; ++step) {
    const Set batch = train.batch(step, 64);
    // What float32 says of the norm at these weights.
    optimizer.zero_grad();
    loss_of(model, batch, false).backward();
    const double expected = gradients(model).norm().item<double>();

    optimizer.zero_grad();
    scaler.scale(loss_of(model, batch, true)).backward();
    scaler.unscale_(optimizer);
    const double norm = nn::utils::clip_grad_norm_(model->parameters(), kMaxNorm).item<double>();
    largest = std::max(largest, gradients(model).norm().item<double>());
    scaler.step(optimizer);
    scaler.update();
    worst = std::max(worst, std::abs(norm - expected) / expected);
  }
  std::printf("norms before clipping agree with float32's to %.2g; after it the largest is %.4f\n",
              worst, largest);
  expect(worst < 0.01, "the norm is the true one, not multiplied by the scale");
  expect(largest < kMaxNorm * 1.0001, "no step is longer than allowed");
  expect(accuracy(model, test_set()) > 90, "it still learns");

  // Without unscale_ the limit would have met a norm 65,536 times too large.
  optimizer.zero_grad();
  scaler.scale(loss_of(model, train.batch(0, 64), true)).backward();
  try {
    nn::utils::clip_grad_norm_(model->parameters(), kMaxNorm);
    expect(false, "clipping scaled gradients is refused");
  } catch (const Error& refusal) {
    std::printf("clipping without unscale_: \"%s\"\n", refusal.what());
  }
  return verdict();
}
