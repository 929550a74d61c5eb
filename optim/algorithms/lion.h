// Lion, which steps by the sign of a momentum. Spelled as Adam is; the update is
// core/formula/update.h.
#pragma once
#include <tuple>

#include "halftape/core/options.h"
#include "halftape/optim/optimizer.h"
#include "halftape/optim/state/param_storage.h"

namespace halftape::optim {

class LionOptions : public OptimizerOptions {
 public:
  explicit LionOptions(double lr = 1e-4) : lr_(lr) {}
  std::unique_ptr<OptimizerOptions> clone() const override;
  double get_lr() const override { return lr_; }
  void set_lr(double lr) override { lr_ = lr; }
  void validate() const override;
  std::map<std::string, double> to_map() const override;
  void from_map(const std::map<std::string, double>&) override;

  using Betas = std::tuple<double, double>;
  HALFTAPE_ARG(double, lr) = 1e-4;
  HALFTAPE_ARG(Betas, betas) = std::make_tuple(0.9, 0.99);
  HALFTAPE_ARG(double, weight_decay) = 0;  // shrinks the weight, as AdamW's
  HALFTAPE_ARG(bool, maximize) = false;
  HALFTAPE_ARG(Weights, weights) = Weights::Plain;  // of 16-bit parameters
};

/// p ← p − lr·(sign(β1·m + (1 − β1)·g) + weight_decay·p);  m ← β2·m + (1 − β2)·g.   Chen et al.
/// 2023, arXiv:2302.06675. Half of Adam's state; the paper takes a rate 3 to 10 times smaller than
/// AdamW's and a weight decay larger by as much.
class Lion : public Optimizer {
 public:
  explicit Lion(const std::vector<OptimizerParamGroup>& groups,
                const LionOptions& defaults = LionOptions())
      : Optimizer(groups, defaults.clone()) {}
  explicit Lion(std::vector<Tensor> params, const LionOptions& defaults = LionOptions())
      : Lion(std::vector<OptimizerParamGroup>{OptimizerParamGroup(std::move(params))}, defaults) {}
  bool supports_control() const override { return true; }

 protected:
  void update(const OptimizerOptions& options, const std::vector<Tensor>& params,
              const StepControl& control) override;
};

}  // namespace halftape::optim
