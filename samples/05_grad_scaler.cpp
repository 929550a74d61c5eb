// 5. fp16 with a GradScaler: the training is that of 04_fp16, with one line more before the loop,
// one more in it, and two changed.
//
// It takes a second. Last line: test accuracy 97 %
#include <halftape/halftape.h>

#include <cstdio>

using namespace halftape;
using Digits = data::datasets::Digits;

constexpr double kWeight = 2e-6;  // of the loss: its gradients are too small for float16

int main() {
  manual_seed(1);
  const Digits train, test(Digits::Mode::kTest);
  const Tensor images = train.images().flatten(1), labels = train.targets();
  nn::Sequential model{nn::Linear(64, 128), nn::ReLU(), nn::Linear(128, 128), nn::ReLU(),
                       nn::Linear(128, 10)};
  optim::Adam optimizer(model->parameters(), optim::AdamOptions(1e-3).eps(1e-8 * kWeight));

  // The loss is multiplied by the scale, and with it every gradient, which lifts them into
  // float16's range. Before the weights change, the gradients are divided by it again, in float32.
  // The scale is found by trying: it doubles after growth_interval good steps; where a gradient is
  // infinite, the step is skipped and the scale is halved.
  amp::GradScaler scaler({.growth_interval = 100});

  for (int epoch = 1; epoch <= 20; ++epoch) {
    const Tensor order = randperm(images.size(0));
    for (int64_t i = 0; i < images.size(0); i += 32) {
      const Tensor batch = order.slice(0, i, i + 32);
      optimizer.zero_grad();
      Tensor loss;
      {
        const amp::autocast region(kCPU, kFloat16);
        loss = nn::functional::cross_entropy(model->forward(images.index_select(0, batch)),
                                             labels.index_select(0, batch));
      }
      scaler.scale(loss * kWeight).backward();
      scaler.step(optimizer);  // skipped, bit for bit, when a gradient overflowed
      scaler.update();         // the next scale
    }
    if (epoch % 5 == 0) {
      const amp::ScalerStats stats = scaler.stats();
      std::printf("epoch %2d: scale %.0f, %lld of %lld steps skipped\n", epoch, scaler.get_scale(),
                  static_cast<long long>(stats.skips), static_cast<long long>(stats.steps));
    }
  }

  model->eval();  // dropout and batch norm, if there were any, change
  const NoGradGuard no_grad;
  const Tensor guess = model->forward(test.images().flatten(1)).argmax(1);
  std::printf("test accuracy %.0f %%\n",
              100 * (guess == test.targets()).to(kFloat32).mean().item<double>());
}
