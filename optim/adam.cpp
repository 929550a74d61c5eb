#include "halftape/optim/adam.h"

#include <limits>

#include "halftape/optim/options_map.h"

namespace halftape::optim {

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
  std::vector<AdamSlot> slots;
  for (const Tensor& p : params) {
    ParamState& s = state(p);
    const Weights weights = weights_of(p, o.weights());
    const Keeping kept = keeping(p, weights, s);
    auto moment = [&](const char* key) {
      if (!s.count(key)) s[key] = full(p.sizes(), 0, moment_dtype(p, weights), p.device());
      return s[key];
    };
    AdamSlot slot{p.array(), p.grad().array(), moment("exp_avg"), moment("exp_avg_sq"), {}, {}};
    if (o.amsgrad()) slot.max_exp_avg_sq = moment("max_exp_avg_sq");
    if (!s.count("step")) s["step"] = full({}, 0, kFloat32, p.device());
    slot.step = s["step"];
    slot.keeping = kept;
    slots.push_back(std::move(slot));
  }
  AdamScalars scalars;
  scalars.lr = o.lr();
  std::tie(scalars.beta1, scalars.beta2) = o.betas();
  scalars.eps = o.eps();
  scalars.weight_decay = o.weight_decay();
  scalars.decoupled = decoupled_;
  scalars.amsgrad = o.amsgrad();
  scalars.maximize = o.maximize();
  backend(params[0].device()).adam(slots, scalars, control);
}

}  // namespace halftape::optim
