// Four examples, 33 weights and one loop: a network learns the exclusive or.
//
//     xor
#include <fmt/format.h>

#include "program.h"

using namespace halftape;

int main(int argc, char** argv) {
  CLI::App app{"A network learns the exclusive or.", "xor"};
  sample::Machine machine;
  machine.add_options(app);
  int64_t steps = 300;
  app.add_option("--steps", steps)->check(CLI::PositiveNumber)->capture_default_str();

  return sample::run(app, argc, argv, [&] {
    const Device device = machine.prepare();
    const Tensor x = tensor({{0.f, 0.f}, {0.f, 1.f}, {1.f, 0.f}, {1.f, 1.f}}).to(device);
    const Tensor y = tensor({{0.f}, {1.f}, {1.f}, {0.f}}).to(device);
    nn::Sequential model{nn::Linear(2, 8), nn::Tanh(), nn::Linear(8, 1)};
    model->to(device);
    optim::Adam optimizer(model->parameters(), optim::AdamOptions(0.05));
    const sample::Interrupt ctrl_c;
    int64_t step = 0;
    while (step < steps && !ctrl_c.asked()) {
      optimizer.zero_grad();
      const Tensor loss = nn::functional::binary_cross_entropy_with_logits(model->forward(x), y);
      loss.backward();
      optimizer.step();
      if (++step % 100 == 0 || step == steps)
        fmt::print("step {}: loss {:.4f}\n", step, loss.item<double>());
    }
    if (step < steps) fmt::print("stopped after {} of {} steps\n", step, steps);

    const NoGradGuard no_grad;
    const Tensor p = sigmoid(model->forward(x));
    int right = 0;
    for (int64_t i = 0; i < 4; ++i) {
      const bool guess = p[i].item<double>() > 0.5;
      right += guess == (y[i].item<double>() == 1);
      fmt::print("{:g} xor {:g} = {}  (p = {:.3f})\n", x[i][0].item<double>(),
                 x[i][1].item<double>(), guess ? 1 : 0, p[i].item<double>());
    }
    fmt::print("{} of 4 right\n", right);
  });
}
