// Adam and AdamW. Values as PyTorch's; the update is core/formula/update.h.
#pragma once
#include <tuple>

#include "halftape/core/options.h"
#include "halftape/optim/optimizer.h"
#include "halftape/optim/state/param_storage.h"

namespace halftape::optim {

class AdamOptions : public OptimizerOptions {
 public:
  AdamOptions(double lr = 1e-3) : lr_(lr) {}  // NOLINT: as LibTorch
  std::unique_ptr<OptimizerOptions> clone() const override;
  double get_lr() const override { return lr_; }
  void set_lr(double lr) override { lr_ = lr; }
  void validate() const override;
  std::map<std::string, double> to_map() const override;
  void from_map(const std::map<std::string, double>&) override;

  using Betas = std::tuple<double, double>;
  HALFTAPE_ARG(double, lr) = 1e-3;
  HALFTAPE_ARG(Betas, betas) = std::make_tuple(0.9, 0.999);
  HALFTAPE_ARG(double, eps) = 1e-8;
  HALFTAPE_ARG(double, weight_decay) = 0;  // Adam: added to the gradient; AdamW: shrinks the weight
  HALFTAPE_ARG(bool, amsgrad) = false;
  HALFTAPE_ARG(bool, maximize) = false;
  HALFTAPE_ARG(Weights, weights) = Weights::Plain;  // of 16-bit parameters
};

/// The same with AdamW's default weight decay, 0.01.
class AdamWOptions : public AdamOptions {
 public:
  AdamWOptions(double lr = 1e-3) : AdamOptions(lr) { weight_decay(1e-2); }  // NOLINT: as LibTorch
  AdamWOptions(const AdamOptions& set) : AdamOptions(set) {}  // NOLINT: AdamWOptions(1e-3).eps(…)
  std::unique_ptr<OptimizerOptions> clone() const override;
};

/// Kingma & Ba 2014, arXiv:1412.6980; amsgrad: Reddi et al. 2018.
class Adam : public Optimizer {
 public:
  explicit Adam(const std::vector<OptimizerParamGroup>& groups,
                const AdamOptions& defaults = AdamOptions())
      : Optimizer(groups, defaults.clone()) {}
  explicit Adam(std::vector<Tensor> params, const AdamOptions& defaults = AdamOptions())
      : Adam(std::vector<OptimizerParamGroup>{OptimizerParamGroup(std::move(params))}, defaults) {}
  bool supports_control() const override { return true; }

 protected:
  Adam(const std::vector<OptimizerParamGroup>& groups, std::unique_ptr<OptimizerOptions> defaults,
       bool decoupled)
      : Optimizer(groups, std::move(defaults)), decoupled_(decoupled) {}
  void update(const OptimizerOptions& options, const std::vector<Tensor>& params,
              const StepControl& control) override;

 private:
  bool decoupled_ = false;
};

/// Decoupled weight decay: Loshchilov & Hutter 2017, arXiv:1711.05101.
class AdamW : public Adam {
 public:
  explicit AdamW(const std::vector<OptimizerParamGroup>& groups,
                 const AdamWOptions& defaults = AdamWOptions())
      : Adam(groups, defaults.clone(), true) {}
  explicit AdamW(std::vector<Tensor> params, const AdamWOptions& defaults = AdamWOptions())
      : AdamW(std::vector<OptimizerParamGroup>{OptimizerParamGroup(std::move(params))}, defaults) {}
};

}  // namespace halftape::optim
