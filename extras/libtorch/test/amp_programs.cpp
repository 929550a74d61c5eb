// Two programs for compare.py, which runs the same with Python's torch.amp. All numbers are printed
// as hexadecimal floats.
//
//     amp_programs trace      reads series of events, and prints what the scaler did after each
//     amp_programs train DTYPE    trains an MLP under autocast on the CPU
#include <cstdio>
#include <iostream>
#include <sstream>

#include "../amp.h"

using torch::Tensor;

namespace {

/// One series: options, then a letter for each iteration. Prints the scale, the tracker, and two
/// weights, one for each of two optimizers.
void trace(std::istream& line) {
  double init = 0, growth = 0, backoff = 0;
  int64_t interval = 0;
  std::string events;
  line >> init >> growth >> backoff >> interval >> events;
  amp::GradScaler scaler(torch::kCPU, amp::GradScalerOptions()
                                          .init_scale(init)
                                          .growth_factor(growth)
                                          .backoff_factor(backoff)
                                          .growth_interval(interval));
  const Tensor a = torch::zeros({2}, torch::requires_grad()),
               b = torch::zeros({3}, torch::requires_grad());
  torch::optim::SGD first({a}, 1.), second({b}, 1.);
  for (const char event : events) {
    first.zero_grad(), second.zero_grad();
    scaler.scale((a * 0).sum() + (b * 0).sum()).backward();
    a.mutable_grad().fill_(scaler.get_scale());
    b.mutable_grad().fill_(scaler.get_scale());
    if (event == 'i') a.mutable_grad()[1] = INFINITY;
    if (event == 'm') b.mutable_grad()[2] = -INFINITY;
    if (event == 'n') b.mutable_grad()[0] = NAN;
    if (event == 'u' || event == 'n') scaler.unscale_(first), scaler.unscale_(second);
    scaler.step(first);
    scaler.step(second);
    if (event == 's')
      scaler.update(48.);
    else
      scaler.update();
    std::printf("%a %a %a %a ", scaler.get_scale(),
                static_cast<double>(scaler.get_growth_tracker()), a[0].item<double>(),
                b[1].item<double>());
  }
  std::printf("\n");
}

/// Numbers in (-1, 1) that are the same in all languages.
Tensor numbers(std::vector<int64_t> shape, int64_t seed) {
  int64_t count = 1;
  for (const int64_t s : shape) count *= s;
  const Tensor i = torch::arange(count, torch::kLong);
  return (((i * 7919 + seed * 104729) % 2003).to(torch::kFloat) / 1001.5F - 1).reshape(shape);
}

void train(at::ScalarType dtype) {
  torch::set_num_threads(1);
  torch::nn::Sequential model{torch::nn::Linear(16, 32), torch::nn::ReLU(),
                              torch::nn::Linear(32, 32), torch::nn::ReLU(),
                              torch::nn::Linear(32, 4)};
  {
    const torch::NoGradGuard no_grad;
    int64_t seed = 0;
    for (Tensor& p : model->parameters()) p.copy_(numbers(p.sizes().vec(), ++seed) * 0.25);
  }
  const Tensor x = numbers({64, 16}, 100), y = numbers({64, 4}, 101);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  amp::GradScaler scaler(torch::kCPU,
                         amp::GradScalerOptions().init_scale(16777216).growth_interval(5));
  for (int i = 0; i < 60; ++i) {
    optimizer.zero_grad();
    Tensor loss;
    {
      const amp::autocast region(torch::kCPU, dtype);
      loss = torch::mse_loss(model->forward(x), y);
    }
    scaler.scale(loss).backward();
    if (i % 2 == 0) scaler.unscale_(optimizer);
    scaler.step(optimizer);
    scaler.update();
    std::printf("%a %a\n", loss.item<double>(), scaler.get_scale());
  }
  for (const Tensor& p : model->parameters()) {
    const Tensor flat = p.detach().reshape({-1});
    for (int64_t i = 0; i < flat.numel(); ++i) std::printf("%a\n", flat[i].item<double>());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "trace")
    for (std::string text; std::getline(std::cin, text);) {
      std::istringstream line(text);
      trace(line);
    }
  else if (what == "train" && argc == 3)
    train(argv[2] == std::string("float16") ? torch::kHalf : torch::kBFloat16);
  else
    return std::cerr << "usage: amp_programs trace | train bfloat16|float16\n", 2;
}
