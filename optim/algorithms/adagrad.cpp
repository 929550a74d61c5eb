#include "halftape/optim/algorithms/adagrad.h"

#include "halftape/core/contract/backend.h"

namespace halftape::optim {

void AdagradOptions::fields(StateFields& f) {
  f.owner = "Adagrad";
  f.add("lr", lr_, kNonNegative);
  f.add("lr_decay", lr_decay_, kNonNegative);
  f.add("weight_decay", weight_decay_, kNonNegative);
  f.add("initial_accumulator_value", initial_accumulator_value_, kNonNegative);
  f.add("eps", eps_, kNonNegative);
  f.add("maximize", maximize_);
  f.add("weights", weights_, kWeightsRange);
}

Adagrad::Adagrad(const std::vector<OptimizerParamGroup>& groups, const AdagradOptions& defaults)
    : RuleOptimizer(groups, defaults) {
  for (const OptimizerParamGroup& group : param_groups()) {
    const RuleState kept = kept_state(static_cast<const AdagradOptions&>(group.options()));
    UpdateSlot unused;
    for (const Tensor& p : group.params()) add_state(p, kept, unused);
  }
}

UpdateRule Adagrad::rule(const AdagradOptions& o) const {
  return AdagradRule{.lr = o.lr(),
                     .lr_decay = o.lr_decay(),
                     .eps = o.eps(),
                     .weight_decay = o.weight_decay(),
                     .maximize = o.maximize()};
}

RuleState Adagrad::kept_state(const AdagradOptions& o) const {
  return {.weights = o.weights(),
          .moments = {"sum"},
          .counts_steps = true,
          .initial_value = o.initial_accumulator_value()};
}

}  // namespace halftape::optim
