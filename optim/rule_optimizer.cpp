#include "halftape/optim/rule_optimizer.h"

#include <cstring>

#include "halftape/autograd/tape/weight_cast.h"
#include "halftape/core/capture/capture.h"
#include "halftape/core/contract/backend.h"

namespace halftape::optim {
namespace {

const OptimizerOptions& options_of(const Optimizer& optimizer, const Tensor& parameter) {
  for (const OptimizerParamGroup& group : optimizer.param_groups())
    for (const Tensor& p : group.params())
      if (p.is_same(parameter)) return group.options();
  halftape::detail::fail("Graph: a parameter that its step updates has left the optimizer");
}

}  // namespace

void RuleOptimizerBase::add_state(const Tensor& p, const RuleState& kept, UpdateSlot& slot) {
  ParamState& of_p = state(p);
  // First: it compares the chosen storage with the state so far.
  slot.keeping = param_storage(p, effective_weights(p, kept.weights), of_p);
  for (size_t i = 0; i < kMostMoments; ++i)
    if (kept.moments[i])
      slot.moments[i] = moment(kept.moments[i], p, kept.weights, of_p, kept.initial_value);
  if (kept.counts_steps) slot.step = step_count(p, of_p);
}

void RuleOptimizerBase::update(const OptimizerOptions& options, const std::vector<Tensor>& params,
                               const StepControl& given) {
  if (params.empty()) return;
  const RuleState kept = state_of_rule(options);
  std::vector<UpdateSlot> slots(params.size());
  for (size_t i = 0; i < params.size(); ++i) {
    slots[i].param = params[i].array();
    slots[i].grad = params[i].grad().array();
    add_state(params[i], kept, slots[i]);
  }
  const UpdateRule rule = rule_of(options);
  StepControl control = given;
  const Device device = params[0].device();
  if (Capture* capture = Capture::on(device)) {
    // The rule's bytes on the device, which the graph writes again before every replay.
    const size_t size = std::visit([](const auto& r) { return sizeof r; }, rule);
    control.live_rule = capture->value(size, [this, parameter = params[0]](std::byte* bytes) {
      const OptimizerOptions& now = options_of(*this, parameter);
      now.validate();
      std::visit([&](const auto& r) { std::memcpy(bytes, &r, sizeof r); }, rule_of(now));
    });
  }
  for (size_t i = 0; i < params.size(); ++i) slots[i].low = detail::take_low_copy(params[i]);
  backend(device).update(slots, rule, control);
  // After a skipped step, weight and copy are unchanged, so the copy is still valid.
  for (size_t i = 0; i < params.size(); ++i)
    if (slots[i].low.defined()) detail::return_low_copy(params[i], slots[i].low);
}

}  // namespace halftape::optim
