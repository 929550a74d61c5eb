// Stochastic gradient descent. Values as PyTorch's; the update is core/formula/update.h.
#pragma once
#include "halftape/core/options.h"
#include "halftape/optim/rule_optimizer.h"

namespace halftape::optim {

class SGDOptions : public OptimizerCloneableOptions<SGDOptions> {
 public:
  SGDOptions(double lr = 1e-3) : lr_(lr) {}  // NOLINT: as LibTorch
  void validate() const override;

  HALFTAPE_ARG(double, lr) = 1e-3;
  HALFTAPE_ARG(double, momentum) = 0;
  HALFTAPE_ARG(double, dampening) = 0;
  HALFTAPE_ARG(double, weight_decay) = 0;  // added to the gradient
  HALFTAPE_ARG(bool, nesterov) = false;    // needs momentum, and no dampening
  HALFTAPE_ARG(bool, maximize) = false;
  HALFTAPE_ARG(Weights, weights) = Weights::Plain;  // of 16-bit parameters

 protected:
  void fields(StateFields& fields) override;
};

/// v ← momentum·v + (1 − dampening)·g;  p ← p − lr·v.   Sutskever et al. 2013, as PyTorch writes
/// it.
class SGD : public RuleOptimizer<SGDOptions> {
 public:
  using RuleOptimizer::RuleOptimizer;

 protected:
  UpdateRule rule(const SGDOptions& options) const override;
  RuleState kept_state(const SGDOptions& options) const override;
};

}  // namespace halftape::optim
