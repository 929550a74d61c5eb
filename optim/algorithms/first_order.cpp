#include "halftape/optim/algorithms/first_order.h"

#include "halftape/core/contract/backend.h"

namespace halftape::optim {
namespace {

/// The options that all of them have.
template <class Options>
void common_fields(StateFields& f, const char* owner, Options& o) {
  f.owner = owner;
  f.add("lr", o.lr(), kNonNegative);
  f.add("weight_decay", o.weight_decay(), kNonNegative);
  f.add("maximize", o.maximize());
  f.add("weights", o.weights(), kWeightsRange);
}

}  // namespace

void SGDOptions::fields(StateFields& f) {
  common_fields(f, "SGD", *this);
  f.add("momentum", momentum_, kNonNegative);
  f.add("dampening", dampening_);
  f.add("nesterov", nesterov_);
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
  return {.weights = o.weights(),
          .moments = {"momentum_buffer"},
          .off = {o.momentum() == 0},
          .counts_steps = true,
          .given_steps = 1};  // the first update would overwrite the buffer
}

void RMSpropOptions::fields(StateFields& f) {
  common_fields(f, "RMSprop", *this);
  f.add("alpha", alpha_, kNonNegative);
  f.add("eps", eps_, kNonNegative);
  f.add("momentum", momentum_, kNonNegative);
  f.add("centered", centered_);
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
          .moments = {"square_avg", "momentum_buffer", "grad_avg"},
          .off = {false, o.momentum() == 0, !o.centered()},
          .counts_steps = true};
}

void AdagradOptions::fields(StateFields& f) {
  common_fields(f, "Adagrad", *this);
  f.add("lr_decay", lr_decay_, kNonNegative);
  f.add("initial_accumulator_value", initial_accumulator_value_, kNonNegative);
  f.add("eps", eps_, kNonNegative);
}

Adagrad::Adagrad(const std::vector<OptimizerParamGroup>& groups, const AdagradOptions& defaults)
    : RuleOptimizer(groups, defaults) {
  for (const OptimizerParamGroup& group : param_groups()) {
    const RuleState kept = state_of_rule(group.options());
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

AdamWOptions::AdamWOptions(const AdamOptions& set) : AdamOptions(set) {
  HALFTAPE_CHECK(weight_decay() != 0 || dynamic_cast<const AdamWOptions*>(&set),
                 "AdamW: these are AdamOptions, whose weight_decay is 0; AdamWOptions have 0.01, "
                 "and may set 0");
}

void AdamOptions::fields(StateFields& f) {
  common_fields(f, "Adam", *this);
  f.add("eps", eps_, kNonNegative);
  f.add("beta1", std::get<0>(betas_), kBelowOne);
  f.add("beta2", std::get<1>(betas_), kBelowOne);
  f.add("amsgrad", amsgrad_);
}

UpdateRule Adam::rule(const AdamOptions& o) const {
  const auto [beta1, beta2] = o.betas();
  return AdamRule{.lr = o.lr(),
                  .beta1 = beta1,
                  .beta2 = beta2,
                  .eps = o.eps(),
                  .weight_decay = o.weight_decay(),
                  .decoupled = decoupled_,
                  .amsgrad = o.amsgrad(),
                  .maximize = o.maximize()};
}

RuleState Adam::kept_state(const AdamOptions& o) const {
  return {.weights = o.weights(),
          .moments = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
          .off = {false, false, !o.amsgrad()},
          .always = 2,
          .counts_steps = true};
}

void LionOptions::fields(StateFields& f) {
  common_fields(f, "Lion", *this);
  f.add("beta1", std::get<0>(betas_), kBelowOne);
  f.add("beta2", std::get<1>(betas_), kBelowOne);
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
