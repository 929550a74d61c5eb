// The base of the optimizers whose step is one rule of core/formula/update.h.
#pragma once
#include <typeinfo>
#include <unordered_map>
#include <vector>

#include "halftape/core/formula/update.h"
#include "halftape/optim/optimizer.h"
#include "halftape/optim/state/param_storage.h"
#include "halftape/optim/state/seen_weight.h"

namespace halftape {
struct UpdateSlot;  // core/contract/backend.h
}

namespace halftape::optim {

/// The state that a rule keeps for every parameter.
struct RuleState {
  Weights weights = Weights::Plain;        // how 16-bit weights are kept
  const char* moments[kMostMoments] = {};  // their names, in the rule's order; null for none
  bool off[kMostMoments] = {};             // those that these options do not need
  size_t always = 1;                       // so many of the first come together, with "step"
  bool counts_steps = false;               // keeps the number of updates as "step"
  double given_steps = 0;                  // "step" where a moment was set before the first update
  double initial_value = 0;                // of the moments
};

/// The part that does not depend on the class of options.
class RuleOptimizerBase : public Optimizer {
 public:
  bool supports_control() const override { return true; }

 protected:
  using Optimizer::Optimizer;
  /// The rule and the state that these options ask for.
  virtual UpdateRule rule_of(const OptimizerOptions& options) const = 0;
  /// The state that these options ask for.
  virtual RuleState state_of_rule(const OptimizerOptions& options) const = 0;
  /// The parameter of which `updated` is a piece, where update() is given pieces; else itself.
  virtual Tensor whole_of(const Tensor& updated) const { return updated; }
  /// Updates all parameters in one call of the backend. It also writes the 16-bit copies that
  /// autocast keeps of weights (autograd/tape/weight_cast.h), so that the next region casts none.
  /// Before every replay, a Graph makes the rule again from the options of that moment.
  void update(const OptimizerOptions& options, const std::vector<Tensor>& params,
              const StepControl& control) override;
  void check_state(const OptimizerOptions& options,
                   const std::vector<Tensor>& params) const override;
  void draw_keys(const OptimizerOptions& options, const std::vector<Tensor>& params,
                 const std::vector<Tensor>& originals) override;
  void state_was_loaded() noexcept override { written_.clear(); }
  /// Makes the state of a parameter that has none.
  void make_state(const Tensor& parameter, const RuleState& kept);
  /// Puts the state of a parameter into the slot, and makes it on first use.
  void add_state(const Tensor& parameter, const RuleState& kept, UpdateSlot& slot);
  void check_names(const ParamState& saved, const Tensor& parameter,
                   const OptimizerOptions& options, const std::string& of,
                   Mismatches& mismatches) const override;

 private:
  // Weights with something beside them, as they were after their last update.
  std::unordered_map<const halftape::detail::TensorImpl*, SeenWeight> written_;
};

/// The base of one optimizer: a derived class has options, a rule() made of them, and names its
/// state in kept_state().
template <class Options>
class RuleOptimizer : public RuleOptimizerBase {
 public:
  explicit RuleOptimizer(const std::vector<OptimizerParamGroup>& groups,
                         const Options& defaults = Options())
      : RuleOptimizerBase(groups, defaults.clone()) {
    for (const OptimizerParamGroup& group : param_groups()) check_options(group.options());
  }
  explicit RuleOptimizer(std::vector<Tensor> params, const Options& defaults = Options())
      : RuleOptimizer(std::vector<OptimizerParamGroup>{OptimizerParamGroup(std::move(params))},
                      defaults) {}

 protected:
  /// The rule with the constants that these options give, and the state that it keeps.
  virtual UpdateRule rule(const Options& options) const = 0;
  /// The state that the rule keeps with these options.
  virtual RuleState kept_state(const Options& options) const = 0;
  /// Throws for the options of another class.
  void check_options(const OptimizerOptions& options) const final {
    HALFTAPE_CHECK(typeid(options) == typeid(Options) || dynamic_cast<const Options*>(&options),
                   "optimizer: a group has the options of another class of optimizers");
  }
  UpdateRule rule_of(const OptimizerOptions& options) const final {
    return rule(static_cast<const Options&>(options));
  }
  RuleState state_of_rule(const OptimizerOptions& options) const final {
    return kept_state(static_cast<const Options&>(options));
  }
};

}  // namespace halftape::optim
