#include "halftape/optim/update_list.h"

#include <cstring>

#include "halftape/autograd/tape/weight_cast.h"
#include "halftape/core/capture/capture.h"

namespace halftape::optim {

UpdateSlot& UpdateList::add(const Tensor& p, Weights chosen, ParamState& state) {
  params_.push_back(p);
  UpdateSlot& slot = slots_.emplace_back();
  slot.param = p.array();
  slot.grad = p.grad().array();
  slot.keeping = keeping(p, weights_of(p, chosen), state);
  return slot;
}

namespace {

const OptimizerOptions& options_of(const Optimizer& optimizer, const Tensor& parameter) {
  for (const OptimizerParamGroup& group : optimizer.param_groups())
    for (const Tensor& p : group.params())
      if (p.is_same(parameter)) return group.options();
  halftape::detail::fail("Graph: a parameter that its step updates has left the optimizer");
}

/// The rule's bytes on the device, of which a replay makes what it is by then; undefined outside of
/// a Graph.
Array live(const Optimizer& optimizer, const Tensor& parameter, const UpdateRule& rule,
           const UpdateList::MakeRule& make) {
  Capture* capture = Capture::on(parameter.device());
  if (!capture) return {};
  const size_t size = std::visit([](const auto& r) { return sizeof r; }, rule);
  return capture->value(size, [&optimizer, parameter, make](std::byte* bytes) {
    const OptimizerOptions& now = options_of(optimizer, parameter);
    now.validate();
    std::visit([&](const auto& r) { std::memcpy(bytes, &r, sizeof r); }, make(now));
  });
}

}  // namespace

void UpdateList::run(const Optimizer& optimizer, const OptimizerOptions& options,
                     const MakeRule& make, const StepControl& given) {
  if (slots_.empty()) return;
  const UpdateRule rule = make(options);
  StepControl control = given;
  control.live_rule = live(optimizer, params_[0], rule, make);
  for (size_t i = 0; i < slots_.size(); ++i) slots_[i].low = detail::take_low_copy(params_[i]);
  backend(params_[0].device()).update(slots_, rule, control);
  // A step that the device skipped has left weight and copy as they were: they still fit.
  for (size_t i = 0; i < slots_.size(); ++i)
    if (slots_[i].low.defined()) detail::return_low_copy(params_[i], slots_[i].low);
}

}  // namespace halftape::optim
