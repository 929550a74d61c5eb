// SGD, RMSprop, Adagrad, Adam, AdamW and Lion: optimizers whose step is one rule. Values as
// PyTorch's; the updates are core/formula/update.h.
#pragma once
#include <tuple>

#include "halftape/core/options.h"
#include "halftape/optim/rule_optimizer.h"

namespace halftape::optim {

struct SGDOptions : OptimizerCloneableOptions<SGDOptions> {
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

struct RMSpropOptions : OptimizerCloneableOptions<RMSpropOptions> {
  RMSpropOptions(double lr = 1e-2) : lr_(lr) {}  // NOLINT: as LibTorch

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

struct AdagradOptions : OptimizerCloneableOptions<AdagradOptions> {
  AdagradOptions(double lr = 1e-2) : lr_(lr) {}  // NOLINT: as LibTorch

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
/// its first step on. A master or remainder is made then, too.
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

struct AdamOptions : OptimizerCloneableOptions<AdamOptions> {
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
struct AdamWOptions : AdamOptions {
  AdamWOptions(double lr = 1e-3) : AdamOptions(lr) { weight_decay(1e-2); }  // NOLINT: as LibTorch
  /// Throws for AdamOptions of which weight_decay is 0, their default.
  AdamWOptions(const AdamOptions& set);  // NOLINT
#define HALFTAPE_OWN(T, name)          \
  using AdamOptions::name;             \
  AdamWOptions& name(const T& value) { \
    AdamOptions::name(value);          \
    return *this;                      \
  }
  HALFTAPE_OWN(double, lr)
  HALFTAPE_OWN(Betas, betas)
  HALFTAPE_OWN(double, eps)
  HALFTAPE_OWN(double, weight_decay)
  HALFTAPE_OWN(bool, amsgrad)
  HALFTAPE_OWN(bool, maximize)
  HALFTAPE_OWN(Weights, weights)
#undef HALFTAPE_OWN
  std::unique_ptr<OptimizerOptions> clone() const override {
    return std::make_unique<AdamWOptions>(*this);
  }
  bool assign(const OptimizerOptions& other) override {
    if (typeid(*this) != typeid(AdamWOptions) || typeid(other) != typeid(AdamWOptions))
      return false;
    *this = static_cast<const AdamWOptions&>(other);
    return true;
  }
  std::unique_ptr<OptimizerOptions> unset() const override {
    return std::make_unique<AdamWOptions>();
  }
};

/// Kingma & Ba 2014, arXiv:1412.6980; amsgrad: Reddi et al. 2018.
class Adam : public RuleOptimizer<AdamOptions> {
 public:
  using RuleOptimizer::RuleOptimizer;

 protected:
  UpdateRule rule(const AdamOptions& options) const override;
  RuleState kept_state(const AdamOptions& options) const override;
  bool decoupled_ = false;  // the weight decay, as AdamW's
};

/// Decoupled weight decay: Loshchilov & Hutter 2017, arXiv:1711.05101.
class AdamW : public Adam {
 public:
  explicit AdamW(const std::vector<OptimizerParamGroup>& groups,
                 const AdamWOptions& defaults = AdamWOptions())
      : Adam(groups, defaults) {
    decoupled_ = true;
  }
  explicit AdamW(std::vector<Tensor> params, const AdamWOptions& defaults = AdamWOptions())
      : AdamW(std::vector<OptimizerParamGroup>{OptimizerParamGroup(std::move(params))}, defaults) {}
};

struct LionOptions : OptimizerCloneableOptions<LionOptions> {
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
