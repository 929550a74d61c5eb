// Adagrad. Values as PyTorch's; the update is core/formula/update.h.
#pragma once
#include "halftape/core/options.h"
#include "halftape/optim/rule_optimizer.h"

namespace halftape::optim {

class AdagradOptions : public OptimizerCloneableOptions<AdagradOptions> {
 public:
  explicit AdagradOptions(double lr = 1e-2) : lr_(lr) {}

  HALFTAPE_ARG(double, lr) = 1e-2;
  HALFTAPE_ARG(double, lr_decay) = 0;      // step t has the rate lr / (1 + (t − 1)·lr_decay)
  HALFTAPE_ARG(double, weight_decay) = 0;  // added to the gradient
  HALFTAPE_ARG(double, initial_accumulator_value) = 0;
  HALFTAPE_ARG(double, eps) = 1e-10;
  HALFTAPE_ARG(bool, maximize) = false;
  HALFTAPE_ARG(Weights, weights) = Weights::Plain;  // of 16-bit parameters; chosen at construction

 protected:
  void fields(StateFields& fields) override;
};

/// s ← s + g²;  p ← p − lr·g / (√s + eps).   Duchi, Hazan & Singer 2011. As in LibTorch, every
/// parameter has its state from construction on; a parameter of a group that is added later, from
/// its first step on. A master or remainder is made then, too: load weights into the model before.
class Adagrad : public RuleOptimizer<AdagradOptions> {
 public:
  explicit Adagrad(const std::vector<OptimizerParamGroup>& groups,
                   const AdagradOptions& defaults = AdagradOptions());
  explicit Adagrad(std::vector<Tensor> params, const AdagradOptions& defaults = AdagradOptions())
      : Adagrad(std::vector<OptimizerParamGroup>{OptimizerParamGroup(std::move(params))},
                defaults) {}

 protected:
  UpdateRule rule(const AdagradOptions& options) const override;
  RuleState kept_state(const AdagradOptions& options) const override;
};

}  // namespace halftape::optim
