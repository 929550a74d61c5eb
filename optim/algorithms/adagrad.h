// Adagrad. Values as PyTorch's; the update is core/formula/update.h.
#pragma once
#include "halftape/core/options.h"
#include "halftape/optim/optimizer.h"
#include "halftape/optim/state/param_storage.h"

namespace halftape::optim {

class AdagradOptions : public OptimizerOptions {
 public:
  explicit AdagradOptions(double lr = 1e-2) : lr_(lr) {}
  std::unique_ptr<OptimizerOptions> clone() const override;
  double get_lr() const override { return lr_; }
  void set_lr(double lr) override { lr_ = lr; }
  void validate() const override;
  std::map<std::string, double> to_map() const override;
  void from_map(const std::map<std::string, double>&) override;

  HALFTAPE_ARG(double, lr) = 1e-2;
  HALFTAPE_ARG(double, lr_decay) = 0;      // step t has the rate lr / (1 + (t − 1)·lr_decay)
  HALFTAPE_ARG(double, weight_decay) = 0;  // added to the gradient
  HALFTAPE_ARG(double, initial_accumulator_value) = 0;
  HALFTAPE_ARG(double, eps) = 1e-10;
  HALFTAPE_ARG(bool, maximize) = false;
  HALFTAPE_ARG(Weights, weights) = Weights::Plain;  // of 16-bit parameters; chosen at construction
};

/// s ← s + g²;  p ← p − lr·g / (√s + eps).   Duchi, Hazan & Singer 2011. As in LibTorch, every
/// parameter has its state from construction on, and of a parameter group that is added later, from
/// its first step on. A master or remainder is made with it: load weights into the model before.
class Adagrad : public Optimizer {
 public:
  explicit Adagrad(const std::vector<OptimizerParamGroup>& groups,
                   const AdagradOptions& defaults = AdagradOptions());
  explicit Adagrad(std::vector<Tensor> params, const AdagradOptions& defaults = AdagradOptions())
      : Adagrad(std::vector<OptimizerParamGroup>{OptimizerParamGroup(std::move(params))},
                defaults) {}
  bool supports_control() const override { return true; }

 protected:
  void update(const OptimizerOptions& options, const std::vector<Tensor>& params,
              const StepControl& control) override;
};

}  // namespace halftape::optim
