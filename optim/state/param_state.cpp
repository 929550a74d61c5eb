#include "halftape/optim/state/param_state.h"

#include "halftape/autograd/ops/creation/create.h"

namespace halftape::optim {

Tensor OptimizerParamState::tensor(const char* key) const {
  const auto found = values_->find(key);
  return found == values_->end() ? Tensor() : Tensor(found->second);
}
double OptimizerParamState::number(const char* key) const {
  const auto found = values_->find(key);
  return found == values_->end() ? 0 : read_double(found->second);
}
void OptimizerParamState::set(const char* key, const Tensor& value) {
  HALFTAPE_CHECK(value.defined(), "optimizer: \"", key, "\" is to become an undefined tensor");
  (*values_)[key] = value.array();
}
void OptimizerParamState::set(const char* key, double value, Dtype dtype) {
  (*values_)[key] = full({}, value, dtype, device_);
}

OptimizerParamState* OptimizerStateView::Entry::shown(const std::type_info& view) const {
  const ParamState* values = &optimizer_->state(parameter_);
  for (const auto& known : optimizer_->shown_) {
    const OptimizerParamState& state = *known;
    if (state.values_ == values && typeid(state) == view) return known.get();
  }
  return nullptr;
}
void OptimizerStateView::Entry::show(std::shared_ptr<OptimizerParamState> view) const {
  view->values_ = &optimizer_->state(parameter_);
  view->device_ = parameter_.device();
  optimizer_->shown_.push_back(std::move(view));
}

template <class Matches>
OptimizerStateView::Entry OptimizerStateView::find(const Matches& matches) const {
  for (const Tensor& p : parameters_of(optimizer_->groups_))
    if (matches(p.impl())) return {*optimizer_, p};
  ::halftape::detail::fail("optimizer: state() was asked for what is none of its parameters");
}

OptimizerStateView::Entry OptimizerStateView::at(const void* parameter) const {
  return find([&](const void* p) { return p == parameter; });
}
OptimizerStateView::Entry OptimizerStateView::at(const std::string& printed) const {
  return find([&](const void* p) { return detail::str(p) == printed; });
}

size_t OptimizerStateView::size() const {
  return static_cast<const Optimizer*>(optimizer_)->state().size();
}

OptimizerStateView Optimizer::state() { return OptimizerStateView(*this); }

}  // namespace halftape::optim
