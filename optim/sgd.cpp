#include "halftape/optim/sgd.h"

#include <limits>

#include "halftape/optim/options_map.h"

namespace halftape::optim {

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
  std::vector<SgdSlot> slots;
  for (const Tensor& p : params) {
    const Weights weights = weights_of(p, o.weights());
    ParamState& s = state(p);
    SgdSlot slot{p.array(), p.grad().array(), {}, {}, keeping(p, weights, s)};
    if (o.momentum() != 0) {
      if (!s.count("momentum_buffer"))
        s["momentum_buffer"] = full(p.sizes(), 0, moment_dtype(p, weights), p.device());
      if (!s.count("step")) s["step"] = full({}, 0, kFloat32, p.device());
      slot.momentum = s["momentum_buffer"];
      slot.step = s["step"];
    }
    slots.push_back(std::move(slot));
  }
  SgdScalars scalars;
  scalars.lr = o.lr();
  scalars.momentum = o.momentum();
  scalars.dampening = o.dampening();
  scalars.weight_decay = o.weight_decay();
  scalars.nesterov = o.nesterov();
  scalars.maximize = o.maximize();
  backend(params[0].device()).sgd(slots, scalars, control);
}

}  // namespace halftape::optim
