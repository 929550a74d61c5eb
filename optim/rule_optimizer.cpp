#include "halftape/optim/rule_optimizer.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "halftape/autograd/tape/weight_cast.h"
#include "halftape/core/capture/capture.h"
#include "halftape/core/contract/backend.h"

namespace halftape::optim {
namespace {

/// True if something of the weight's value is kept beside it.
bool has_counterpart(Weights w) { return w == Weights::Master || w == Weights::Kahan; }

/// False if replay() will see to what was written since the last update.
bool follows_now(const Tensor& weight) {
  const Capture* capture = Capture::on(weight.device());
  return capture ? capture->writes(weight.array()) : !Capture::active_or_tried();
}

/// Before its replays, what is kept beside the weight follows what others have written.
void keep(Capture& capture, const UpdateSlot& slot) {
  const Keeping& kept = slot.keeping;
  if (!capture.keeps(kept.extra))
    capture.keep(slot.param, kept.extra, [w = kept.weights](const Array& p, const Array& extra) {
      follow_weight(Tensor(p), {w, extra});
    });
  capture.wrote_alike(kept.extra);
}

const OptimizerOptions& options_of(const Optimizer& optimizer, const Tensor& parameter) {
  for (const OptimizerParamGroup& group : optimizer.param_groups())
    for (const Tensor& p : group.params())
      if (p.is_same(parameter)) return group.options();
  halftape::detail::fail("Graph: a parameter that its step updates has left the optimizer");
}

}  // namespace

void RuleOptimizerBase::make_state(const Tensor& p, const RuleState& kept) {
  UpdateSlot slot;
  add_state(p, kept, slot);
}

void RuleOptimizerBase::add_state(const Tensor& p, const RuleState& kept, UpdateSlot& slot) {
  ParamState& of_p = state(p);
  const Weights weights = effective_weights(p, kept.weights);
  const size_t before = of_p.size();
  slot.keeping = param_storage(p, weights, of_p);
  if (has_counterpart(weights) && of_p.size() == before && follows_now(p)) {
    const auto last = written_.find(p.impl());
    // A state that was loaded may be older than the weight.
    if (last == written_.end() || !last->second.is_surely(p)) follow_weight(p, slot.keeping);
  }
  size_t count = weights == Weights::Plain ? 0 : 1;
  if (kept.counts_steps && !kept.off[0]) {
    // Made before the moments: where memory for them runs out, none seems to be given.
    const bool given = kept.given_steps != 0 && of_p.count(kept.moments[0]);
    slot.step = step_count(p, of_p, given ? kept.given_steps : 0);
    ++count;
  }
  for (size_t i = 0; i < kMostMoments; ++i) {
    if (!kept.moments[i] || kept.off[i]) continue;
    slot.moments[i] = moment(kept.moments[i], p, kept.weights, of_p, kept.initial_value);
    ++count;
  }
  if (of_p.size() > count) check_storage(p, weights, of_p);
}

void RuleOptimizerBase::check_state(const OptimizerOptions& options,
                                    const std::vector<Tensor>& params) const {
  const RuleState kept = state_of_rule(options);
  for (const Tensor& p : params) {
    HALFTAPE_CHECK(p.device() == params[0].device(), "optimizer: one group has parameters on ",
                   params[0].device(), " and on ", p.device(),
                   "; give those of each device a group of their own");
    const ParamState& of_p = state_of(p);
    const Weights weights = effective_weights(p, kept.weights);
    check_storage(p, weights, of_p);
    if (has_counterpart(weights)) check_beside(p, storage_name(weights), of_p);
    for (size_t i = 0; i < kMostMoments; ++i)
      if (kept.moments[i] && !kept.off[i]) check_beside(p, kept.moments[i], of_p);
  }
}

void RuleOptimizerBase::draw_keys(const OptimizerOptions& options,
                                  const std::vector<Tensor>& params,
                                  const std::vector<Tensor>& originals) {
  const RuleState kept = state_of_rule(options);
  for (size_t i = 0; i < params.size(); ++i)
    if (effective_weights(params[i], kept.weights) == Weights::Stochastic)
      param_storage(params[i], Weights::Stochastic, state(params[i]), originals[i]);
}

void RuleOptimizerBase::check_names(const ParamState& saved, const Tensor& p,
                                    const OptimizerOptions& options, const std::string& of,
                                    Mismatches& mismatches) const {
  if (saved.empty()) return;
  const RuleState kept = state_of_rule(options);
  const auto has = [&](const char* name) { return name && saved.count(name); };
  const bool stepped = has("step") || std::any_of(kept.moments, kept.moments + kMostMoments, has);
  std::set<std::string> expected;
  for (size_t i = 0; i < kMostMoments; ++i)
    if (kept.moments[i] && (i < kept.always ? stepped : has(kept.moments[i])))
      expected.insert(kept.moments[i]);
  if (kept.counts_steps && stepped) expected.insert("step");
  if (const char* extra = storage_name(effective_weights(p, kept.weights))) expected.insert(extra);
  mismatches.names(saved, expected, of);
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
    control.live_rule = capture->value(size, [this, alive = lifetime(),
                                              parameter = whole_of(params[0])](std::byte* bytes) {
      HALFTAPE_CHECK(!alive.expired(),
                     "Graph: the optimizer of its step is gone; keep it for as long as the graph");
      const OptimizerOptions& now = options_of(*this, parameter);
      now.validate();
      std::visit([&](const auto& r) { std::memcpy(bytes, &r, sizeof r); }, rule_of(now));
    });
  }
  for (size_t i = 0; i < params.size(); ++i)
    if (params[i].impl()->low_copied) slots[i].low = detail::take_low_copy(params[i]);
  backend(device).update(slots, rule, control);
  for (size_t i = 0; i < params.size(); ++i) {
    // After a skipped step, weight and copy are unchanged, so the copy is still valid.
    if (slots[i].low.defined()) detail::return_low_copy(params[i], slots[i].low);
    if (!has_counterpart(slots[i].keeping.weights)) continue;
    written_[params[i].impl()] = SeenWeight(params[i]);
    if (Capture* capture = Capture::on(device)) keep(*capture, slots[i]);
  }
}

}  // namespace halftape::optim
