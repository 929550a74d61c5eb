// The base of the optimizers whose step is one rule of core/formula/update.h.
#pragma once
#include <vector>

#include "halftape/core/formula/update.h"
#include "halftape/optim/optimizer.h"
#include "halftape/optim/state/param_storage.h"

namespace halftape {
struct UpdateSlot;  // core/contract/backend.h
}

namespace halftape::optim {

/// What a step keeps of every parameter.
struct RuleState {
  Weights weights = Weights::Plain;
  const char* moments[kMostMoments] = {};  // their names, in the rule's order; null for none
  bool counts_steps = false;               // "step" is the count of updates
  double initial_value = 0;                // of the moments
};

/// The part that does not depend on the class of options.
class RuleOptimizerBase : public Optimizer {
 public:
  bool supports_control() const override { return true; }

 protected:
  using Optimizer::Optimizer;
  virtual UpdateRule rule_of(const OptimizerOptions& options) const = 0;
  virtual RuleState state_of_rule(const OptimizerOptions& options) const = 0;
  /// One call of the backend for all parameters. A 16-bit copy that autocast keeps of a weight
  /// (autograd/tape/weight_cast.h) is written along, so that the next region casts nothing. A Graph
  /// makes the rule anew before every replay, from the options as they are by then.
  void update(const OptimizerOptions& options, const std::vector<Tensor>& params,
              const StepControl& control) override;
  /// Makes the state of a parameter where it is not there yet, and sets the slot's parts of it.
  void add_state(const Tensor& parameter, const RuleState& kept, UpdateSlot& slot);
};

/// A class of your own gives its options, rule() and kept_state().
template <class Options>
class RuleOptimizer : public RuleOptimizerBase {
 public:
  explicit RuleOptimizer(const std::vector<OptimizerParamGroup>& groups,
                         const Options& defaults = Options())
      : RuleOptimizerBase(groups, defaults.clone()) {}
  explicit RuleOptimizer(std::vector<Tensor> params, const Options& defaults = Options())
      : RuleOptimizer(std::vector<OptimizerParamGroup>{OptimizerParamGroup(std::move(params))},
                      defaults) {}

 protected:
  virtual UpdateRule rule(const Options& options) const = 0;
  virtual RuleState kept_state(const Options& options) const = 0;

 private:
  UpdateRule rule_of(const OptimizerOptions& options) const final {
    return rule(static_cast<const Options&>(options));
  }
  RuleState state_of_rule(const OptimizerOptions& options) const final {
    return kept_state(static_cast<const Options&>(options));
  }
};

}  // namespace halftape::optim
