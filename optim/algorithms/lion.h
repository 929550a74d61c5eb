// Lion, which steps by the sign of a momentum. Spelled as Adam is; the update is
// core/formula/update.h.
#pragma once
#include <tuple>

#include "halftape/core/options.h"
#include "halftape/optim/rule_optimizer.h"

namespace halftape::optim {

class LionOptions : public OptimizerCloneableOptions<LionOptions> {
 public:
  explicit LionOptions(double lr = 1e-4) : lr_(lr) {}

  using Betas = std::tuple<double, double>;
  HALFTAPE_ARG(double, lr) = 1e-4;
  HALFTAPE_ARG(Betas, betas) = std::make_tuple(0.9, 0.99);
  HALFTAPE_ARG(double, weight_decay) = 0;  // shrinks the weight, as AdamW's
  HALFTAPE_ARG(bool, maximize) = false;
  HALFTAPE_ARG(Weights, weights) = Weights::Plain;  // of 16-bit parameters

 protected:
  void fields(StateFields& fields) override;
};

/// p ← p − lr·(sign(β1·m + (1 − β1)·g) + weight_decay·p);  m ← β2·m + (1 − β2)·g.   Chen et al.
/// 2023, arXiv:2302.06675. Half of Adam's state; the paper takes a rate 3 to 10 times smaller than
/// AdamW's and a weight decay larger by as much.
class Lion : public RuleOptimizer<LionOptions> {
 public:
  using RuleOptimizer::RuleOptimizer;

 protected:
  UpdateRule rule(const LionOptions& options) const override;
  RuleState kept_state(const LionOptions& options) const override;
};

}  // namespace halftape::optim
