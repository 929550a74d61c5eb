#include "halftape/optim/algorithms/sgd.h"

#include <limits>

#include "halftape/optim/state/options_map.h"
#include "halftape/optim/update_list.h"

namespace halftape::optim {

std::unique_ptr<OptimizerOptions> SGDOptions::clone() const {
  return std::make_unique<SGDOptions>(*this);
}

void SGDOptions::validate() const {
  constexpr double inf = std::numeric_limits<double>::infinity();
  check_option("SGD", "lr", lr(), 0, inf);
  check_option("SGD", "momentum", momentum(), 0, inf);
  check_option("SGD", "weight_decay", weight_decay(), 0, inf);
  HALFTAPE_CHECK(!nesterov() || (momentum() > 0 && dampening() == 0),
                 "SGD: nesterov needs a momentum and no dampening, got momentum ", momentum(),
                 " and dampening ", dampening());
}

std::map<std::string, double> SGDOptions::to_map() const {
  return {{"lr", lr()},
          {"momentum", momentum()},
          {"dampening", dampening()},
          {"weight_decay", weight_decay()},
          {"nesterov", nesterov()},
          {"maximize", maximize()},
          {"weights", static_cast<double>(weights())}};
}

void SGDOptions::from_map(const std::map<std::string, double>& saved) {
  lr(saved_option(saved, "lr"))
      .momentum(saved_option(saved, "momentum"))
      .dampening(saved_option(saved, "dampening"));
  weight_decay(saved_option(saved, "weight_decay"));
  nesterov(saved_option(saved, "nesterov") != 0).maximize(saved_option(saved, "maximize") != 0);
  weights(saved_weights(saved));
}

void SGD::update(const OptimizerOptions& base, const std::vector<Tensor>& params,
                 const StepControl& control) {
  const auto& o = static_cast<const SGDOptions&>(base);
  UpdateList list(params.size());
  for (const Tensor& p : params) {
    ParamState& s = state(p);
    UpdateSlot& slot = list.add(p, o.weights(), s);
    if (o.momentum() == 0) continue;
    slot.moments[0] = moment("momentum_buffer", p, o.weights(), s);
    slot.step = step_count(p, s);
  }
  const auto rule_of = [](const OptimizerOptions& given) -> UpdateRule {
    const auto& now = static_cast<const SGDOptions&>(given);
    SgdRule rule;
    rule.lr = now.lr();
    rule.momentum = now.momentum();
    rule.dampening = now.dampening();
    rule.weight_decay = now.weight_decay();
    rule.nesterov = now.nesterov();
    rule.maximize = now.maximize();
    return rule;
  };
  list.run(*this, base, rule_of, control);
}

}  // namespace halftape::optim
