#include "halftape/amp/tools/inject.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "halftape/amp/gradients.h"
#include "halftape/core/contract/backend.h"

namespace halftape::amp {

struct Injection::Plan {
  Fault fault;
  Tensor parameter;  // undefined: found by its position in the optimizer
  int64_t checks = 0;
  std::atomic<bool> happened{false};
};

namespace {

struct Planned {
  std::mutex mutex;
  std::vector<std::shared_ptr<Injection::Plan>> plans;
};
Planned& planned() {
  static auto* all = new Planned;  // NOLINT: statics may plan in their destructors
  return *all;
}

const Tensor& named(const Fault& fault,
                    const std::vector<std::pair<std::string, Tensor>>& parameters) {
  if (const auto* place = std::get_if<int64_t>(&fault.parameter)) {
    HALFTAPE_CHECK(*place >= 0 && *place < static_cast<int64_t>(parameters.size()),
                   "inject: there is no parameter ", *place, " among ", parameters.size());
    return parameters[static_cast<size_t>(*place)].second;
  }
  const auto& name = std::get<std::string>(fault.parameter);
  const auto found = std::find_if(parameters.begin(), parameters.end(),
                                  [&](const auto& p) { return p.first == name; });
  HALFTAPE_CHECK(found != parameters.end(), "inject: there is no parameter \"", name, "\" among ",
                 parameters.size(), "; give model->named_parameters().pairs()");
  return found->second;
}

void apply(Injection::Plan& plan, std::span<const Tensor> parameters) {
  const bool by_name = plan.parameter.defined();
  const int64_t place = by_name ? 0 : std::get<int64_t>(plan.fault.parameter);
  const auto found = by_name
                         ? std::find_if(parameters.begin(), parameters.end(),
                                        [&](auto& p) { return p.is_same(plan.parameter); })
                         : parameters.begin() + std::min<int64_t>(place, std::ssize(parameters));
  if (found == parameters.end() || plan.checks++ != plan.fault.step) return;
  const Tensor& g = found->grad();
  HALFTAPE_CHECK(g.defined(), "inject: at step ", plan.fault.step, " the parameter ",
                 found->sizes(), " has no gradient");
  HALFTAPE_CHECK(plan.fault.element < g.numel(), "inject: there is no element ", plan.fault.element,
                 " in a gradient of shape ", g.sizes());
  Array element = g.array();
  int64_t left = plan.fault.element;
  for (int d = element.dim() - 1; d >= 0; --d) {
    const int64_t i = left % g.size(d);
    left /= g.size(d);
    element = element.slice(d, i, i + 1);
  }
  backend(g.device()).fill(element, plan.fault.value);
  g.array().bump_version();
  plan.happened = true;
}

void apply_all(std::span<const Tensor> parameters) {
  Planned& all = planned();
  const std::lock_guard lock(all.mutex);
  for (const auto& plan : all.plans) apply(*plan, parameters);
}

}  // namespace

Injection::Injection(std::shared_ptr<Plan> plan) : plan_(std::move(plan)) {
  Planned& all = planned();
  const std::lock_guard lock(all.mutex);
  all.plans.push_back(plan_);
  set_gradient_hook(apply_all);
}

Injection::~Injection() {
  if (!plan_) return;
  Planned& all = planned();
  const std::lock_guard lock(all.mutex);
  std::erase(all.plans, plan_);
  if (all.plans.empty()) set_gradient_hook(nullptr);
}

bool Injection::happened() const {
  HALFTAPE_CHECK(plan_, "Injection::happened: this one was moved from; ask the one it moved to");
  return plan_->happened;
}

Injection inject(const Fault& fault,
                 const std::vector<std::pair<std::string, Tensor>>& parameters) {
  HALFTAPE_CHECK(fault.step >= 0 && fault.element >= 0, "inject: step ", fault.step,
                 " and element ", fault.element, " count from 0");
  auto plan = std::make_shared<Injection::Plan>();
  plan->fault = fault;
  const auto* place = std::get_if<int64_t>(&fault.parameter);
  HALFTAPE_CHECK(!place || *place >= 0, "inject: parameter ", place ? *place : 0, " counts from 0");
  if (!place || !parameters.empty()) {
    const Tensor& parameter = named(fault, parameters);
    HALFTAPE_CHECK(parameter.defined(), "inject: the parameter that was named is undefined");
    plan->parameter = parameter;
  }
  return Injection(std::move(plan));
}

}  // namespace halftape::amp
