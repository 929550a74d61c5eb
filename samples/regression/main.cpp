// The smallest useful program: a network fits a noisy curve in mixed precision, and draws it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "program.h"
#include "terminal.h"

using namespace halftape;

int main(int argc, char** argv) {
  CLI::App app{"Fits a noisy curve in fp16 with a GradScaler, and draws it.", "regression"};
  sample::Machine machine;
  machine.add_options(app);
  int64_t steps = 500;
  app.add_option("--steps", steps)->check(CLI::PositiveNumber)->capture_default_str();

  return sample::run(app, argc, argv, [&] {
    const Device device = machine.prepare();
    const auto curve = [](const Tensor& x) { return (x * 3).sin() * (1 - x.abs() / 4); };
    const Tensor x = linspace(-2, 2, 256).unsqueeze(1).to(device);
    const Tensor y = curve(x) + randn({256, 1}).to(device) * 0.1;

    nn::Sequential model{nn::Linear(1, 64), nn::Tanh(), nn::Linear(64, 64), nn::Tanh(),
                         nn::Linear(64, 1)};
    model->to(device);
    optim::AdamW optimizer(model->parameters(), optim::AdamWOptions(5e-3));
    optim::CosineAnnealingLR schedule(optimizer, steps);
    amp::GradScaler scaler;
    const sample::Interrupt ctrl_c;
    int64_t step = 0;
    while (step < steps && !ctrl_c.asked()) {
      optimizer.zero_grad();
      Tensor loss;
      {
        const amp::autocast region(device.type(), kFloat16);
        loss = nn::functional::mse_loss(model->forward(x), y);
      }
      scaler.scale(loss).backward();
      scaler.step(optimizer);
      scaler.update();
      schedule.step();
      if (++step % 100 == 0 || step == steps)
        fmt::print("step {}: loss {:.4f}\n", step, loss.item<double>());
    }
    if (step < steps) fmt::print("stopped after {} of {} steps\n", step, steps);

    const NoGradGuard no_grad;
    const Tensor fit = model->forward(x), error = (fit - curve(x)).square().mean().sqrt();
    const int64_t width = std::clamp(terminal::width() - 1, 8, 64);
    std::vector<std::string> plot(15, std::string(static_cast<size_t>(width), ' '));
    for (int64_t i = 0; i < 256; ++i) {
      const auto row = [&](const Tensor& t) {
        return static_cast<size_t>(
            std::lround(7 - 5.5 * std::clamp(t[i].item<double>(), -1.2, 1.2)));
      };
      const auto column = static_cast<size_t>(i * width / 256);
      if (plot[row(y)][column] == ' ') plot[row(y)][column] = '.';
      plot[row(fit)][column] = '#';
    }
    for (const std::string& line : plot) fmt::print("{}\n", line);
    fmt::print("error {:.3f} against the curve, of noise 0.1\n", error.item<double>());
  });
}
