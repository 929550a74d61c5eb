#include "halftape/optim/algorithms/adam.h"

#include <limits>

#include "halftape/optim/state/options_map.h"
#include "halftape/optim/update_list.h"

namespace halftape::optim {

std::unique_ptr<OptimizerOptions> AdamOptions::clone() const {
  return std::make_unique<AdamOptions>(*this);
}
std::unique_ptr<OptimizerOptions> AdamWOptions::clone() const {
  return std::make_unique<AdamWOptions>(*this);
}

void AdamOptions::validate() const {
  constexpr double inf = std::numeric_limits<double>::infinity();
  check_option("Adam", "lr", lr(), 0, inf);
  check_option("Adam", "eps", eps(), 0, inf);
  check_option("Adam", "beta1", std::get<0>(betas()), 0, 1);
  check_option("Adam", "beta2", std::get<1>(betas()), 0, 1);
  check_option("Adam", "weight_decay", weight_decay(), 0, inf);
}

std::map<std::string, double> AdamOptions::to_map() const {
  return {{"lr", lr()},
          {"beta1", std::get<0>(betas())},
          {"beta2", std::get<1>(betas())},
          {"eps", eps()},
          {"weight_decay", weight_decay()},
          {"amsgrad", amsgrad()},
          {"maximize", maximize()},
          {"weights", static_cast<double>(weights())}};
}

void AdamOptions::from_map(const std::map<std::string, double>& saved) {
  lr(saved_option(saved, "lr"))
      .eps(saved_option(saved, "eps"))
      .weight_decay(saved_option(saved, "weight_decay"));
  betas({saved_option(saved, "beta1"), saved_option(saved, "beta2")});
  amsgrad(saved_option(saved, "amsgrad") != 0).maximize(saved_option(saved, "maximize") != 0);
  weights(saved_weights(saved));
}

void Adam::update(const OptimizerOptions& base, const std::vector<Tensor>& params,
                  const StepControl& control) {
  const auto& o = static_cast<const AdamOptions&>(base);
  UpdateList list(params.size());
  for (const Tensor& p : params) {
    ParamState& s = state(p);
    UpdateSlot& slot = list.add(p, o.weights(), s);
    slot.moments[0] = moment("exp_avg", p, o.weights(), s);
    slot.moments[1] = moment("exp_avg_sq", p, o.weights(), s);
    if (o.amsgrad()) slot.moments[2] = moment("max_exp_avg_sq", p, o.weights(), s);
    slot.step = step_count(p, s);
  }
  const auto rule_of = [decoupled = decoupled_](const OptimizerOptions& given) -> UpdateRule {
    const auto& now = static_cast<const AdamOptions&>(given);
    AdamRule rule;
    rule.lr = now.lr();
    std::tie(rule.beta1, rule.beta2) = now.betas();
    rule.eps = now.eps();
    rule.weight_decay = now.weight_decay();
    rule.decoupled = decoupled;
    rule.amsgrad = now.amsgrad();
    rule.maximize = now.maximize();
    return rule;
  };
  list.run(*this, base, rule_of, control);
}

}  // namespace halftape::optim
