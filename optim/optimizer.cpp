#include "halftape/optim/optimizer.h"

#include <atomic>
#include <set>

#include "halftape/autograd/grad_mode.h"
#include "halftape/autograd/grad_tag.h"
#include "halftape/optim/weights.h"

namespace halftape::optim {

OptimizerParamGroup::OptimizerParamGroup(const OptimizerParamGroup& other)
    : params_(other.params_), options_(other.options_ ? other.options_->clone() : nullptr) {}

OptimizerParamGroup& OptimizerParamGroup::operator=(OptimizerParamGroup other) {
  std::swap(params_, other.params_);
  std::swap(options_, other.options_);
  return *this;
}

namespace {
std::atomic<uint64_t> next_id{0};
}

Optimizer::Optimizer(const std::vector<OptimizerParamGroup>& groups,
                     std::unique_ptr<OptimizerOptions> defaults)
    : id_(next_id.fetch_add(1, std::memory_order_relaxed)), defaults_(std::move(defaults)) {
  defaults_->validate();
  for (const OptimizerParamGroup& group : groups) add_param_group(group);
  HALFTAPE_CHECK(!parameters().empty(),
                 "optimizer: no parameters were given; are the modules registered?");
}

void Optimizer::add_param_group(const OptimizerParamGroup& group) {
  OptimizerParamGroup added(group);
  if (!added.has_options()) added.set_options(defaults_->clone());
  added.options().validate();
  std::set<const detail::TensorImpl*> seen;
  for (const OptimizerParamGroup& g : groups_)
    for (const Tensor& p : g.params()) seen.insert(p.impl());
  for (const Tensor& p : added.params()) {
    HALFTAPE_CHECK(p.defined() && p.is_floating_point(),
                   "optimizer: a parameter is undefined or not floating-point");
    HALFTAPE_CHECK(p.is_leaf(), "optimizer: can't optimize a non-leaf tensor (", p.sizes(),
                   ", made by an operation)");
    HALFTAPE_CHECK(seen.insert(p.impl()).second, "optimizer: a parameter of shape ", p.sizes(),
                   " appears twice; each belongs to one group");
  }
  groups_.push_back(std::move(added));
}

Tensor Optimizer::step(const LossClosure& closure) {
  Tensor loss;
  if (closure) {
    const AutoGradMode recording(true);
    loss = closure();
  }
  run({});
  return loss;
}

void Optimizer::step(const StepControl& control) {
  HALFTAPE_CHECK(supports_control(),
                 "optimizer: this one cannot decide on the device; call step() without control");
  run(control);
}

void Optimizer::run(const StepControl& control) {
  const NoGradGuard no_grad;
  // Everything is checked before the first group changes.
  std::vector<std::vector<Tensor>> ready;
  for (const OptimizerParamGroup& group : groups_) {
    group.options().validate();
    auto& with_grad = ready.emplace_back();
    for (const Tensor& p : group.params()) {
      const Tensor& g = p.grad();
      if (!g.defined()) continue;
      check_mark(g, "Optimizer::step",
                 control.inv_scale.defined() ? GradTag::Use::AsTheyAre : GradTag::Use::AsTrue);
      HALFTAPE_CHECK(g.sizes() == p.sizes() && g.device() == p.device() && g.is_floating_point(),
                     "optimizer: a gradient (", g.sizes(), ", ", g.dtype(), ", ", g.device(),
                     ") does not fit its parameter (", p.sizes(), ", ", p.dtype(), ", ", p.device(),
                     ")");
      with_grad.push_back(p);
    }
  }
  for (size_t i = 0; i < groups_.size(); ++i)
    if (!ready[i].empty()) update(groups_[i].options(), ready[i], control);
}

void Optimizer::zero_grad(bool set_to_none) {
  const NoGradGuard no_grad;
  for (OptimizerParamGroup& group : groups_) {
    for (Tensor& p : group.params()) {
      Tensor& g = p.mutable_grad();
      if (!g.defined()) continue;
      if (set_to_none)
        g = Tensor();
      else
        g = g.requires_grad() ? Tensor(full(g.sizes(), 0, g.dtype(), g.device())) : g.zero_();
    }
  }
}

std::vector<Tensor> Optimizer::parameters() const {
  std::vector<Tensor> all;
  for (const OptimizerParamGroup& group : groups_)
    all.insert(all.end(), group.params().begin(), group.params().end());
  return all;
}

ParamState& Optimizer::state(const Tensor& parameter) { return state_[parameter.impl()]; }

const ParamState& Optimizer::state_of(const Tensor& parameter) const {
  static const ParamState none;
  const auto found = state_.find(parameter.impl());
  return found == state_.end() ? none : found->second;
}

OptimizerState Optimizer::state_dict() const {
  OptimizerState saved;
  for (const OptimizerParamGroup& group : groups_) saved.groups.push_back(group.options().to_map());
  for (const Tensor& p : parameters()) {
    ParamState& copy = saved.state.emplace_back();
    for (const auto& [key, value] : state_of(p)) copy[key] = value.clone();
  }
  return saved;
}

void Optimizer::load_state_dict(const OptimizerState& saved) {
  const std::vector<Tensor> params = parameters();
  HALFTAPE_CHECK(saved.groups.size() == groups_.size(), "optimizer: the saved state has ",
                 saved.groups.size(), " groups, this optimizer ", groups_.size());
  HALFTAPE_CHECK(saved.state.size() == params.size(), "optimizer: the saved state has ",
                 saved.state.size(), " parameters, this optimizer ", params.size());
  std::map<const detail::TensorImpl*, ParamState> loaded;
  size_t i = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (const Tensor& p : groups_[g].params()) {
      for (const auto& [key, value] : saved.state[i]) {
        const StateEntry expected = state_entry(key, p, saved.groups[g]);
        HALFTAPE_CHECK(value.shape() == expected.shape && value.dtype() == expected.dtype,
                       "optimizer: saved \"", key, "\" of parameter ", i, " is ", value.dtype(),
                       " ", value.shape(), ", expected ", expected.dtype, " ", expected.shape);
        loaded[p.impl()][key] = value.to(p.device()).clone();
      }
      ++i;
    }
  }
  std::vector<std::unique_ptr<OptimizerOptions>> options;
  for (size_t k = 0; k < groups_.size(); ++k) {
    options.push_back(groups_[k].options().clone());
    options.back()->from_map(saved.groups[k]);
    options.back()->validate();
  }
  for (size_t k = 0; k < groups_.size(); ++k) groups_[k].set_options(std::move(options[k]));
  state_ = std::move(loaded);
}

}  // namespace halftape::optim
