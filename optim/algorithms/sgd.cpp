#include "halftape/optim/algorithms/sgd.h"

namespace halftape::optim {

void SGDOptions::fields(StateFields& f) {
  f.owner = "SGD";
  f.add("lr", lr_, kNonNegative);
  f.add("momentum", momentum_, kNonNegative);
  f.add("dampening", dampening_);
  f.add("weight_decay", weight_decay_, kNonNegative);
  f.add("nesterov", nesterov_);
  f.add("maximize", maximize_);
  f.add("weights", weights_, kWeightsRange);
}

void SGDOptions::validate() const {
  OptimizerOptions::validate();
  HALFTAPE_CHECK(!nesterov() || (momentum() > 0 && dampening() == 0),
                 "SGD: nesterov needs a momentum and no dampening, got momentum ", momentum(),
                 " and dampening ", dampening());
}

UpdateRule SGD::rule(const SGDOptions& o) const {
  return SgdRule{.lr = o.lr(),
                 .momentum = o.momentum(),
                 .dampening = o.dampening(),
                 .weight_decay = o.weight_decay(),
                 .nesterov = o.nesterov(),
                 .maximize = o.maximize()};
}

RuleState SGD::kept_state(const SGDOptions& o) const {
  if (o.momentum() == 0) return {.weights = o.weights()};
  return {.weights = o.weights(), .moments = {"momentum_buffer"}, .counts_steps = true};
}

}  // namespace halftape::optim
