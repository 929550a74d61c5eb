// 7. On a GPU: the same program, and then the whole step as one launch.
//
// Without a GPU it says why there is none and trains on the CPU, where a graph calls its step.
// It takes a second. Last line: test accuracy 98 %
#include <halftape/halftape.h>

#include <cstdio>

using namespace halftape;
using Digits = data::datasets::Digits;

int main() {
  manual_seed(2);
  const Device device(cuda::is_available() ? kCUDA : kCPU);
  if (device.is_cuda())
    std::printf("on %s\n", cuda::device_name().c_str());
  else
    std::printf("on the CPU: %s\n", cuda::unavailable_reason().c_str());

  // to() copies tensors and modules to a device. Ops run where their tensors are.
  const Digits train, test(Digits::Mode::kTest);
  const Tensor images = train.images().flatten(1).to(device), labels = train.targets().to(device);
  nn::Sequential model{nn::Linear(64, 128), nn::ReLU(), nn::Linear(128, 128), nn::ReLU(),
                       nn::Linear(128, 10)};
  model->to(device);
  optim::Adam optimizer(model->parameters(), optim::AdamOptions(1e-3));
  amp::GradScaler scaler({.growth_interval = 100});

  // A small network waits for the host, which launches every kernel one by one. A Graph records the
  // step once and replays it as one launch, with the same bits. The step reads its batch from the
  // same two tensors each time.
  const Tensor x = zeros({32, 64}, device), y = zeros({32}, TensorOptions(kInt64).device(device));
  Graph step(device, [&] {
    optimizer.zero_grad();
    Tensor loss;
    {
      const amp::autocast region(device.type(), kFloat16);
      loss = nn::functional::cross_entropy(model->forward(x), y);
    }
    scaler.scale(loss).backward();
    scaler.step(optimizer);
    scaler.update();
  });

  for (int i = 0; i < 1000; ++i) {
    const Tensor batch = randint(images.size(0), {32}).to(device);
    x.copy_(images.index_select(0, batch));
    y.copy_(labels.index_select(0, batch));
    step.replay();
  }

  model->eval();  // dropout and batch norm, if there were any, change
  const NoGradGuard no_grad;
  const Tensor guess = model->forward(test.images().flatten(1).to(device)).argmax(1).cpu();
  std::printf("test accuracy %.0f %%\n",
              100 * (guess == test.targets()).to(kFloat32).mean().item<double>());
}
