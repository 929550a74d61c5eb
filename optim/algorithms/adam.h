// Adam and AdamW. Values as PyTorch's; the update is core/formula/update.h.
#pragma once
#include <tuple>

#include "halftape/core/options.h"
#include "halftape/optim/rule_optimizer.h"

namespace halftape::optim {

class AdamOptions : public OptimizerCloneableOptions<AdamOptions> {
 public:
  AdamOptions(double lr = 1e-3) : lr_(lr) {}  // NOLINT: as LibTorch

  using Betas = std::tuple<double, double>;
  HALFTAPE_ARG(double, lr) = 1e-3;
  HALFTAPE_ARG(Betas, betas) = std::make_tuple(0.9, 0.999);
  HALFTAPE_ARG(double, eps) = 1e-8;
  HALFTAPE_ARG(double, weight_decay) = 0;  // Adam: added to the gradient; AdamW: shrinks the weight
  HALFTAPE_ARG(bool, amsgrad) = false;
  HALFTAPE_ARG(bool, maximize) = false;
  HALFTAPE_ARG(Weights, weights) = Weights::Plain;  // of 16-bit parameters

 protected:
  void fields(StateFields& fields) override;
};

/// AdamOptions with AdamW's default weight decay, 0.01.
class AdamWOptions : public AdamOptions {
 public:
  AdamWOptions(double lr = 1e-3) : AdamOptions(lr) { weight_decay(1e-2); }  // NOLINT: as LibTorch
  AdamWOptions(const AdamOptions& set) : AdamOptions(set) {}  // NOLINT: AdamWOptions(1e-3).eps(…)
  std::unique_ptr<OptimizerOptions> clone() const override;
};

/// Kingma & Ba 2014, arXiv:1412.6980; amsgrad: Reddi et al. 2018.
class Adam : public RuleOptimizer<AdamOptions> {
 public:
  using RuleOptimizer::RuleOptimizer;

 protected:
  UpdateRule rule(const AdamOptions& options) const override;
  RuleState kept_state(const AdamOptions& options) const override;
};

/// Decoupled weight decay: Loshchilov & Hutter 2017, arXiv:1711.05101.
class AdamW : public Adam {
 public:
  explicit AdamW(const std::vector<OptimizerParamGroup>& groups,
                 const AdamWOptions& defaults = AdamWOptions())
      : Adam(groups, defaults) {}
  explicit AdamW(std::vector<Tensor> params, const AdamWOptions& defaults = AdamWOptions())
      : Adam(std::move(params), defaults) {}

 protected:
  UpdateRule rule(const AdamOptions& options) const override;
};

}  // namespace halftape::optim
