// 4. fp16 without scaling: gradients that are too small for 16 bits vanish.
//
// It takes two seconds. Last line: float16 loses what float32 learns
#include <halftape/halftape.h>

#include <cstdio>
#include <optional>

using namespace halftape;
using Digits = data::datasets::Digits;

// The loss is one of several terms in many real trainings, and its weight makes every gradient
// smaller. This one makes them 500,000 times smaller, which Adam does not mind: it divides each
// gradient by its own size. Only eps, which it adds to that size, has to shrink with it.
constexpr double kWeight = 2e-6;

// Trains as 03_network does. Under autocast the matrix products and the gradients that flow between
// layers are in `dtype`, while weights and the optimizer stay in float32.
double train(std::optional<Dtype> dtype) {
  manual_seed(1);
  const Digits train, test(Digits::Mode::kTest);
  const Tensor images = train.images().flatten(1), labels = train.targets();
  nn::Sequential model{nn::Linear(64, 128), nn::ReLU(), nn::Linear(128, 128), nn::ReLU(),
                       nn::Linear(128, 10)};
  optim::Adam optimizer(model->parameters(), optim::AdamOptions(1e-3).eps(1e-8 * kWeight));

  double zeros = 0, elements = 0;
  for (int epoch = 1; epoch <= 20; ++epoch) {
    const Tensor order = randperm(images.size(0));
    for (int64_t i = 0; i < images.size(0); i += 32) {
      const Tensor batch = order.slice(0, i, i + 32);
      optimizer.zero_grad();
      Tensor loss;
      {
        const amp::autocast region(kCPU, dtype, dtype.has_value());  // until the closing brace
        loss = nn::functional::cross_entropy(model->forward(images.index_select(0, batch)),
                                             labels.index_select(0, batch));
      }
      (loss * kWeight).backward();
      optimizer.step();
    }
    for (const Tensor& p : model->parameters()) {
      zeros += (p.grad() == 0).to(kFloat32).sum().item<double>();
      elements += static_cast<double>(p.numel());
    }
  }

  model->eval();  // dropout and batch norm, if there were any, change
  const NoGradGuard no_grad;
  const Tensor guess = model->forward(test.images().flatten(1)).argmax(1);
  const double accuracy = 100 * (guess == test.targets()).to(kFloat32).mean().item<double>();
  std::printf("%-9s %4.1f %% of the gradients are 0; test accuracy %.0f %%\n",
              dtype ? "float16:" : "float32:", 100 * zeros / elements, accuracy);
  return accuracy;
}

int main() {
  // The smallest positive number of float16 is 2^-24, about 6e-8. What is below half of it is 0.
  std::printf("1e-7 in float16 is %.3g, 1e-8 is %.3g\n",
              tensor({1e-7f}).to(kFloat16).item<double>(),
              tensor({1e-8f}).to(kFloat16).item<double>());
  const double full = train(std::nullopt), half = train(kFloat16);
  std::printf("float16 %s\n",
              half < full - 30 ? "loses what float32 learns" : "learns what float32 learns");
}
