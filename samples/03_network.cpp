// 3. A network: it learns to read 1,442 handwritten digits, in float32.
//
// It takes a second. Last line: test accuracy 98 %
#include <halftape/halftape.h>

#include <cstdio>

using namespace halftape;
using Digits = data::datasets::Digits;

int main() {
  manual_seed(4);  // the same weights and batches in every run

  // The digits come with the library: 8x8 grey pixels from 0 to 1, and a class from 0 to 9 each.
  const Digits train, test(Digits::Mode::kTest);
  const Tensor images = train.images().flatten(1), labels = train.targets();  // (1442, 64), (1442)

  // Three layers. In braces they are made in order, and so are their first weights, whatever the
  // compiler. A module holds its parameters; the optimizer gets them to change them.
  nn::Sequential model{nn::Linear(64, 128), nn::ReLU(), nn::Linear(128, 128), nn::ReLU(),
                       nn::Linear(128, 10)};
  optim::Adam optimizer(model->parameters(), optim::AdamOptions(1e-3));

  for (int epoch = 1; epoch <= 20; ++epoch) {
    const Tensor order = randperm(images.size(0));
    double total = 0;
    for (int64_t i = 0; i < images.size(0); i += 32) {
      const Tensor batch = order.slice(0, i, i + 32);
      const Tensor x = images.index_select(0, batch), y = labels.index_select(0, batch);

      optimizer.zero_grad();  // forget the last gradients
      const Tensor loss = nn::functional::cross_entropy(model->forward(x), y);
      loss.backward();   // a gradient for each weight
      optimizer.step();  // a small step down each
      total += loss.item<double>() * static_cast<double>(x.size(0));
    }
    if (epoch % 5 == 0)
      std::printf("epoch %d: loss %.4f\n", epoch, total / static_cast<double>(images.size(0)));
  }

  // Guesses for images that the network has not seen. Nothing is recorded for a derivative.
  model->eval();  // dropout and batch norm, if there were any, change
  const NoGradGuard no_grad;
  const Tensor guess = model->forward(test.images().flatten(1)).argmax(1);
  std::printf("test accuracy %.0f %%\n",
              100 * (guess == test.targets()).to(kFloat32).mean().item<double>());
}
