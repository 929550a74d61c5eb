// RMSprop. Values as PyTorch's; the update is core/formula/update.h.
#pragma once
#include "halftape/core/options.h"
#include "halftape/optim/optimizer.h"
#include "halftape/optim/state/param_storage.h"

namespace halftape::optim {

class RMSpropOptions : public OptimizerOptions {
 public:
  explicit RMSpropOptions(double lr = 1e-2) : lr_(lr) {}
  std::unique_ptr<OptimizerOptions> clone() const override;
  double get_lr() const override { return lr_; }
  void set_lr(double lr) override { lr_ = lr; }
  void validate() const override;
  std::map<std::string, double> to_map() const override;
  void from_map(const std::map<std::string, double>&) override;

  HALFTAPE_ARG(double, lr) = 1e-2;
  HALFTAPE_ARG(double, alpha) = 0.99;  // how much of the mean square is kept
  HALFTAPE_ARG(double, eps) = 1e-8;
  HALFTAPE_ARG(double, weight_decay) = 0;  // added to the gradient
  HALFTAPE_ARG(double, momentum) = 0;
  HALFTAPE_ARG(bool, centered) = false;  // divide by the deviation, not by the root mean square
  HALFTAPE_ARG(bool, maximize) = false;
  HALFTAPE_ARG(Weights, weights) = Weights::Plain;  // of 16-bit parameters
};

/// s ← alpha·s + (1 − alpha)·g²;  p ← p − lr·g / (√s + eps).   Tieleman & Hinton 2012, lecture 6.5;
/// centered: Graves 2013, arXiv:1308.0850.
class RMSprop : public Optimizer {
 public:
  explicit RMSprop(const std::vector<OptimizerParamGroup>& groups,
                   const RMSpropOptions& defaults = RMSpropOptions())
      : Optimizer(groups, defaults.clone()) {}
  explicit RMSprop(std::vector<Tensor> params, const RMSpropOptions& defaults = RMSpropOptions())
      : RMSprop(std::vector<OptimizerParamGroup>{OptimizerParamGroup(std::move(params))},
                defaults) {}
  bool supports_control() const override { return true; }

 protected:
  void update(const OptimizerOptions& options, const std::vector<Tensor>& params,
              const StepControl& control) override;
};

}  // namespace halftape::optim
