#include "halftape/optim/algorithms/rmsprop.h"

#include <limits>

#include "halftape/optim/state/options_map.h"
#include "halftape/optim/update_list.h"

namespace halftape::optim {

std::unique_ptr<OptimizerOptions> RMSpropOptions::clone() const {
  return std::make_unique<RMSpropOptions>(*this);
}

void RMSpropOptions::validate() const {
  constexpr double inf = std::numeric_limits<double>::infinity();
  check_option("RMSprop", "Invalid learning rate:", lr(), 0, inf);
  check_option("RMSprop", "Invalid epsilon value:", eps(), 0, inf);
  check_option("RMSprop", "Invalid momentum value:", momentum(), 0, inf);
  check_option("RMSprop", "Invalid weight_decay value:", weight_decay(), 0, inf);
  check_option("RMSprop", "Invalid alpha value:", alpha(), 0, inf);
}

std::map<std::string, double> RMSpropOptions::to_map() const {
  return {{"lr", lr()},
          {"alpha", alpha()},
          {"eps", eps()},
          {"weight_decay", weight_decay()},
          {"momentum", momentum()},
          {"centered", centered()},
          {"maximize", maximize()},
          {"weights", static_cast<double>(weights())}};
}

void RMSpropOptions::from_map(const std::map<std::string, double>& saved) {
  lr(saved_option(saved, "lr")).alpha(saved_option(saved, "alpha")).eps(saved_option(saved, "eps"));
  weight_decay(saved_option(saved, "weight_decay")).momentum(saved_option(saved, "momentum"));
  centered(saved_option(saved, "centered") != 0).maximize(saved_option(saved, "maximize") != 0);
  weights(saved_weights(saved));
}

void RMSprop::update(const OptimizerOptions& base, const std::vector<Tensor>& params,
                     const StepControl& control) {
  const auto& o = static_cast<const RMSpropOptions&>(base);
  UpdateList list(params.size());
  for (const Tensor& p : params) {
    ParamState& s = state(p);
    UpdateSlot& slot = list.add(p, o.weights(), s);
    slot.moments[0] = moment("square_avg", p, o.weights(), s);
    if (o.momentum() != 0) slot.moments[1] = moment("momentum_buffer", p, o.weights(), s);
    if (o.centered()) slot.moments[2] = moment("grad_avg", p, o.weights(), s);
    slot.step = step_count(p, s);
  }
  const auto rule_of = [](const OptimizerOptions& given) -> UpdateRule {
    const auto& now = static_cast<const RMSpropOptions&>(given);
    RmspropRule rule;
    rule.lr = now.lr();
    rule.alpha = now.alpha();
    rule.eps = now.eps();
    rule.weight_decay = now.weight_decay();
    rule.momentum = now.momentum();
    rule.centered = now.centered();
    rule.maximize = now.maximize();
    return rule;
  };
  list.run(*this, base, rule_of, control);
}

}  // namespace halftape::optim
