// Three parameters in two groups, whose steps go through a scaler.
#pragma once
#include <limits>
#include <vector>

#include <halftape/halftape.h>

namespace halftape::testing {

struct ScaledTraining {
  Tensor a = ones({3}, requires_grad()), b = ones({2, 2}, requires_grad()),
         c = ones({5}, requires_grad());
  optim::SGD optimizer{
      std::vector<optim::OptimizerParamGroup>{optim::OptimizerParamGroup(std::vector<Tensor>{a, b}),
                                              optim::OptimizerParamGroup(std::vector<Tensor>{c})},
      optim::SGDOptions(0.125)};
  amp::GradScaler scaler;
  explicit ScaledTraining(amp::GradScalerOptions o = {.init_scale = 64, .growth_interval = 1000})
      : scaler(o) {}

  Tensor loss() const { return a.sum() + b.sum() + c.sum(); }
  amp::StepResult step(bool bad = false) { return step(loss(), bad); }
  amp::StepResult step(const Tensor& l, bool bad) {
    optimizer.zero_grad();
    scaler.scale(l).backward();
    if (bad) c.grad().fill_(std::numeric_limits<double>::infinity());
    const auto result = scaler.step(optimizer);
    scaler.update();
    return result;
  }
};

}  // namespace halftape::testing
