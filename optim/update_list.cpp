#include "halftape/optim/update_list.h"

namespace halftape::optim {

UpdateSlot& UpdateList::add(const Tensor& p, Weights chosen, ParamState& state) {
  UpdateSlot slot{p.array(), p.grad().array()};
  slot.keeping = keeping(p, weights_of(p, chosen), state);
  slots_.push_back(std::move(slot));
  return slots_.back();
}

void UpdateList::run(const UpdateRule& rule, const StepControl& control) {
  if (slots_.empty()) return;
  backend(slots_[0].param.device()).update(slots_, rule, control);
}

}  // namespace halftape::optim
