// What a user's first program looks like: one mixed-precision step against the installed package.

// <windows.h> defines these words, so the library's headers have to do without them.
#define near
#define far
#define small char
#include <halftape/halftape.h>

#include <cstdio>
#include <cstring>

namespace ht = halftape;

/// A program may be compiled with hidden visibility.
bool switches_reach_the_library() {
  const ht::Tensor w = ht::ones({1}).requires_grad_();
  {
    const ht::NoGradGuard no_grad;
    if ((w * 2).requires_grad()) return false;
  }
  {
    const ht::InferenceMode mode;
    if (!ht::zeros({1}).is_inference()) return false;
  }
  const ht::autograd::DetectAnomalyGuard anomaly;
  const ht::Tensor y = sqrt(w - 2).sum();
  try {
    y.backward();
  } catch (const ht::Error&) {
    return true;
  }
  return false;
}

int main(int argc, char** argv) {
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
  const bool same = std::strcmp(ht::version(), HALFTAPE_VERSION) == 0;
  if (!switches_reach_the_library()) {
    std::puts("a switch of this program is not the library's");
    return 1;
  }
  for (int i = 1; i < argc; ++i) std::printf("%s ", argv[i]);
  std::printf("halftape %s: %s\n", ht::version(), applied && same ? "ok" : "the step was skipped");
  return applied && same ? 0 : 1;
}
