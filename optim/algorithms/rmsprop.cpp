#include "halftape/optim/algorithms/rmsprop.h"

namespace halftape::optim {

void RMSpropOptions::fields(StateFields& f) {
  f.owner = "RMSprop";
  f.add("lr", lr_, kNonNegative);
  f.add("alpha", alpha_, kNonNegative);
  f.add("eps", eps_, kNonNegative);
  f.add("weight_decay", weight_decay_, kNonNegative);
  f.add("momentum", momentum_, kNonNegative);
  f.add("centered", centered_);
  f.add("maximize", maximize_);
  f.add("weights", weights_, kWeightsRange);
}

UpdateRule RMSprop::rule(const RMSpropOptions& o) const {
  return RmspropRule{.lr = o.lr(),
                     .alpha = o.alpha(),
                     .eps = o.eps(),
                     .weight_decay = o.weight_decay(),
                     .momentum = o.momentum(),
                     .centered = o.centered(),
                     .maximize = o.maximize()};
}

RuleState RMSprop::kept_state(const RMSpropOptions& o) const {
  return {.weights = o.weights(),
          .moments = {"square_avg", o.momentum() != 0 ? "momentum_buffer" : nullptr,
                      o.centered() ? "grad_avg" : nullptr},
          .counts_steps = true};
}

}  // namespace halftape::optim
