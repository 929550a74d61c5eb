// What a user's first program looks like: one mixed-precision step against the installed package.
#include <halftape/halftape.h>

#include <cstdio>

namespace ht = halftape;

int main() {
  ht::nn::Linear model(4, 2);
  ht::optim::SGD optimizer(model->parameters(), ht::optim::SGDOptions(0.1));
  ht::amp::GradScaler scaler;
  const ht::Tensor x = ht::randn({8, 4});
  ht::Tensor loss;
  {
    const ht::amp::autocast region(ht::kCPU, ht::kFloat16);
    loss = model->forward(x).pow(2).mean();
  }
  scaler.scale(loss).backward();
  const bool applied = scaler.step(optimizer).applied();
  scaler.update();
  std::puts(applied ? "ok" : "the step was skipped");
  return applied ? 0 : 1;
}
