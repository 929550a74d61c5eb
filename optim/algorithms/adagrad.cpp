#include "halftape/optim/algorithms/adagrad.h"

#include <limits>

#include "halftape/optim/state/options_map.h"
#include "halftape/optim/update_list.h"

namespace halftape::optim {

void AdagradOptions::validate() const {
  constexpr double inf = std::numeric_limits<double>::infinity();
  check_option("Adagrad", "Invalid learning rate:", lr(), 0, inf);
  check_option("Adagrad", "Invalid lr_decay value:", lr_decay(), 0, inf);
  check_option("Adagrad", "Invalid weight_decay value:", weight_decay(), 0, inf);
  check_option("Adagrad", "Invalid initial_accumulator_value value:", initial_accumulator_value(),
               0, inf);
  check_option("Adagrad", "Invalid epsilon value:", eps(), 0, inf);
}

std::map<std::string, double> AdagradOptions::to_map() const {
  return {{"lr", lr()},
          {"lr_decay", lr_decay()},
          {"weight_decay", weight_decay()},
          {"initial_accumulator_value", initial_accumulator_value()},
          {"eps", eps()},
          {"maximize", maximize()},
          {"weights", static_cast<double>(weights())}};
}

void AdagradOptions::from_map(const std::map<std::string, double>& saved) {
  lr(saved_option(saved, "lr")).lr_decay(saved_option(saved, "lr_decay"));
  weight_decay(saved_option(saved, "weight_decay")).eps(saved_option(saved, "eps"));
  initial_accumulator_value(saved_option(saved, "initial_accumulator_value"));
  maximize(saved_option(saved, "maximize") != 0).weights(saved_weights(saved));
}

namespace {
Array sum(const Tensor& p, const AdagradOptions& o, ParamState& state) {
  return moment("sum", p, o.weights(), state, o.initial_accumulator_value());
}
}  // namespace

std::unique_ptr<OptimizerOptions> AdagradOptions::clone() const {
  return std::make_unique<AdagradOptions>(*this);
}

Adagrad::Adagrad(const std::vector<OptimizerParamGroup>& groups, const AdagradOptions& defaults)
    : Optimizer(groups, defaults.clone()) {
  for (const OptimizerParamGroup& group : param_groups()) {
    const auto& o = static_cast<const AdagradOptions&>(group.options());
    for (const Tensor& p : group.params()) {
      ParamState& s = state(p);
      keeping(p, weights_of(p, o.weights()), s);
      sum(p, o, s);
      step_count(p, s);
    }
  }
}

void Adagrad::update(const OptimizerOptions& base, const std::vector<Tensor>& params,
                     const StepControl& control) {
  const auto& o = static_cast<const AdagradOptions&>(base);
  UpdateList list(params.size());
  for (const Tensor& p : params) {
    ParamState& s = state(p);
    UpdateSlot& slot = list.add(p, o.weights(), s);
    slot.moments[0] = sum(p, o, s);
    slot.step = step_count(p, s);
  }
  const auto rule_of = [](const OptimizerOptions& given) -> UpdateRule {
    const auto& now = static_cast<const AdagradOptions&>(given);
    AdagradRule rule;
    rule.lr = now.lr();
    rule.lr_decay = now.lr_decay();
    rule.eps = now.eps();
    rule.weight_decay = now.weight_decay();
    rule.maximize = now.maximize();
    return rule;
  };
  list.run(*this, base, rule_of, control);
}

}  // namespace halftape::optim
