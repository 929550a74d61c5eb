#include "halftape/optim/algorithms/lion.h"

#include <limits>

#include "halftape/optim/state/options_map.h"
#include "halftape/optim/update_list.h"

namespace halftape::optim {

std::unique_ptr<OptimizerOptions> LionOptions::clone() const {
  return std::make_unique<LionOptions>(*this);
}

void LionOptions::validate() const {
  constexpr double inf = std::numeric_limits<double>::infinity();
  check_option("Lion", "Invalid learning rate:", lr(), 0, inf);
  check_option("Lion", "Invalid beta parameter at index 0:", std::get<0>(betas()), 0, 1);
  check_option("Lion", "Invalid beta parameter at index 1:", std::get<1>(betas()), 0, 1);
  check_option("Lion", "Invalid weight_decay value:", weight_decay(), 0, inf);
}

std::map<std::string, double> LionOptions::to_map() const {
  return {{"lr", lr()},
          {"beta1", std::get<0>(betas())},
          {"beta2", std::get<1>(betas())},
          {"weight_decay", weight_decay()},
          {"maximize", maximize()},
          {"weights", static_cast<double>(weights())}};
}

void LionOptions::from_map(const std::map<std::string, double>& saved) {
  lr(saved_option(saved, "lr")).weight_decay(saved_option(saved, "weight_decay"));
  betas({saved_option(saved, "beta1"), saved_option(saved, "beta2")});
  maximize(saved_option(saved, "maximize") != 0).weights(saved_weights(saved));
}

void Lion::update(const OptimizerOptions& base, const std::vector<Tensor>& params,
                  const StepControl& control) {
  const auto& o = static_cast<const LionOptions&>(base);
  UpdateList list(params.size());
  for (const Tensor& p : params) {
    ParamState& s = state(p);
    UpdateSlot& slot = list.add(p, o.weights(), s);
    slot.moments[0] = moment("exp_avg", p, o.weights(), s);
  }
  const auto rule_of = [](const OptimizerOptions& given) -> UpdateRule {
    const auto& now = static_cast<const LionOptions&>(given);
    LionRule rule;
    rule.lr = now.lr();
    std::tie(rule.beta1, rule.beta2) = now.betas();
    rule.weight_decay = now.weight_decay();
    rule.maximize = now.maximize();
    return rule;
  };
  list.run(*this, base, rule_of, control);
}

}  // namespace halftape::optim
