// Stochastic gradient descent. Values as PyTorch's; the update is core/formula/update.h.
#pragma once
#include "halftape/core/options.h"
#include "halftape/optim/optimizer.h"
#include "halftape/optim/state/param_storage.h"

namespace halftape::optim {

class SGDOptions : public OptimizerOptions {
 public:
  SGDOptions(double lr = 1e-3) : lr_(lr) {}  // NOLINT: as LibTorch
  std::unique_ptr<OptimizerOptions> clone() const override;
  double get_lr() const override { return lr_; }
  void set_lr(double lr) override { lr_ = lr; }
  void validate() const override;
  std::map<std::string, double> to_map() const override;
  void from_map(const std::map<std::string, double>&) override;

  HALFTAPE_ARG(double, lr) = 1e-3;
  HALFTAPE_ARG(double, momentum) = 0;
  HALFTAPE_ARG(double, dampening) = 0;
  HALFTAPE_ARG(double, weight_decay) = 0;  // added to the gradient
  HALFTAPE_ARG(bool, nesterov) = false;    // needs momentum, and no dampening
  HALFTAPE_ARG(bool, maximize) = false;
  HALFTAPE_ARG(Weights, weights) = Weights::Plain;  // of 16-bit parameters
};

/// v ← momentum·v + (1 − dampening)·g;  p ← p − lr·v.   Sutskever et al. 2013, as PyTorch writes
/// it.
class SGD : public Optimizer {
 public:
  explicit SGD(const std::vector<OptimizerParamGroup>& groups,
               const SGDOptions& defaults = SGDOptions())
      : Optimizer(groups, defaults.clone()) {}
  explicit SGD(std::vector<Tensor> params, const SGDOptions& defaults = SGDOptions())
      : SGD(std::vector<OptimizerParamGroup>{OptimizerParamGroup(std::move(params))}, defaults) {}
  bool supports_control() const override { return true; }

 protected:
  void update(const OptimizerOptions& options, const std::vector<Tensor>& params,
              const StepControl& control) override;
};

}  // namespace halftape::optim
