#include "halftape/optim/update_list.h"

#include "halftape/autograd/low_copy.h"

namespace halftape::optim {

UpdateSlot& UpdateList::add(const Tensor& p, Weights chosen, ParamState& state) {
  UpdateSlot slot{p.array(), p.grad().array()};
  slot.keeping = keeping(p, weights_of(p, chosen), state);
  params_.push_back(p);
  slots_.push_back(std::move(slot));
  return slots_.back();
}

void UpdateList::run(const UpdateRule& rule, const StepControl& control) {
  if (slots_.empty()) return;
  for (size_t i = 0; i < slots_.size(); ++i) slots_[i].low = detail::take_low_copy(params_[i]);
  backend(params_[0].device()).update(slots_, rule, control);
  // A step that the device skipped has left weight and copy as they were: they still fit.
  for (size_t i = 0; i < slots_.size(); ++i)
    if (slots_[i].low.defined()) detail::return_low_copy(params_[i], slots_[i].low);
}

}  // namespace halftape::optim
