#include "halftape/optim/algorithms/adam.h"

namespace halftape::optim {
namespace {

AdamRule adam_rule(const AdamOptions& o, bool decoupled) {
  const auto [beta1, beta2] = o.betas();
  return {.lr = o.lr(),
          .beta1 = beta1,
          .beta2 = beta2,
          .eps = o.eps(),
          .weight_decay = o.weight_decay(),
          .decoupled = decoupled,
          .amsgrad = o.amsgrad(),
          .maximize = o.maximize()};
}

}  // namespace

void AdamOptions::fields(StateFields& f) {
  f.owner = "Adam";
  f.add("lr", lr_, kNonNegative);
  f.add("eps", eps_, kNonNegative);
  f.add("beta1", std::get<0>(betas_), kBelowOne);
  f.add("beta2", std::get<1>(betas_), kBelowOne);
  f.add("weight_decay", weight_decay_, kNonNegative);
  f.add("amsgrad", amsgrad_);
  f.add("maximize", maximize_);
  f.add("weights", weights_, kWeightsRange);
}

std::unique_ptr<OptimizerOptions> AdamWOptions::clone() const {
  return std::make_unique<AdamWOptions>(*this);
}

UpdateRule Adam::rule(const AdamOptions& o) const { return adam_rule(o, false); }
UpdateRule AdamW::rule(const AdamOptions& o) const { return adam_rule(o, true); }

RuleState Adam::kept_state(const AdamOptions& o) const {
  return {.weights = o.weights(),
          .moments = {"exp_avg", "exp_avg_sq", o.amsgrad() ? "max_exp_avg_sq" : nullptr},
          .counts_steps = true};
}

}  // namespace halftape::optim
