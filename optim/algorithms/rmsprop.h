// RMSprop. Values as PyTorch's; the update is core/formula/update.h.
#pragma once
#include "halftape/core/options.h"
#include "halftape/optim/rule_optimizer.h"

namespace halftape::optim {

class RMSpropOptions : public OptimizerCloneableOptions<RMSpropOptions> {
 public:
  explicit RMSpropOptions(double lr = 1e-2) : lr_(lr) {}

  HALFTAPE_ARG(double, lr) = 1e-2;
  HALFTAPE_ARG(double, alpha) = 0.99;  // how much of the mean square is kept
  HALFTAPE_ARG(double, eps) = 1e-8;
  HALFTAPE_ARG(double, weight_decay) = 0;  // added to the gradient
  HALFTAPE_ARG(double, momentum) = 0;
  HALFTAPE_ARG(bool, centered) = false;  // divide by the deviation, not by the root mean square
  HALFTAPE_ARG(bool, maximize) = false;
  HALFTAPE_ARG(Weights, weights) = Weights::Plain;  // of 16-bit parameters

 protected:
  void fields(StateFields& fields) override;
};

/// s ← alpha·s + (1 − alpha)·g²;  p ← p − lr·g / (√s + eps).   Tieleman & Hinton 2012, lecture 6.5;
/// centered: Graves 2013, arXiv:1308.0850.
class RMSprop : public RuleOptimizer<RMSpropOptions> {
 public:
  using RuleOptimizer::RuleOptimizer;

 protected:
  UpdateRule rule(const RMSpropOptions& options) const override;
  RuleState kept_state(const RMSpropOptions& options) const override;
};

}  // namespace halftape::optim
