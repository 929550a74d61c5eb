#include "halftape/optim/algorithms/lion.h"

namespace halftape::optim {

void LionOptions::fields(StateFields& f) {
  f.owner = "Lion";
  f.add("lr", lr_, kNonNegative);
  f.add("beta1", std::get<0>(betas_), kBelowOne);
  f.add("beta2", std::get<1>(betas_), kBelowOne);
  f.add("weight_decay", weight_decay_, kNonNegative);
  f.add("maximize", maximize_);
  f.add("weights", weights_, kWeightsRange);
}

UpdateRule Lion::rule(const LionOptions& o) const {
  const auto [beta1, beta2] = o.betas();
  return LionRule{.lr = o.lr(),
                  .beta1 = beta1,
                  .beta2 = beta2,
                  .weight_decay = o.weight_decay(),
                  .maximize = o.maximize()};
}

RuleState Lion::kept_state(const LionOptions& o) const {
  return {.weights = o.weights(), .moments = {"exp_avg"}};
}

}  // namespace halftape::optim
