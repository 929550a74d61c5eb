#include "halftape/optim/optimizer.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <utility>

#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/autograd/tape/op_timer.h"
#include "halftape/autograd/tape/separate_gradients.h"
#include "halftape/core/capture/capture.h"
#include "halftape/core/machine/warn.h"
#include "halftape/optim/state/flat_storage.h"
#include "halftape/optim/state/param_storage.h"

namespace halftape::optim {
namespace {

[[noreturn]] void missing(const char* call) {
  ::halftape::detail::fail("optimizer: its options do not say how to ", call, "(); override it");
}

const StateFields::Field& learning_rate(const StateFields& options, const char* call) {
  const StateFields::Field* found = options.find("lr");
  if (!found) missing(call);
  return *found;
}

/// LibTorch's words for an option.
std::string words_for(const std::string& name) {
  if (name == "lr") return "learning rate";
  if (name == "eps") return "epsilon value";
  if (name == "beta1") return "beta parameter at index 0";
  if (name == "beta2") return "beta parameter at index 1";
  return name + " value";
}

}  // namespace

StateFields::List OptimizerOptions::list() const {
  // fields() names places to write to; const callers only read.
  return [self = const_cast<OptimizerOptions*>(this)](StateFields& f) { self->fields(f); };
}

std::unique_ptr<OptimizerOptions> OptimizerOptions::clone() const { missing("clone"); }
double OptimizerOptions::get_lr() const {
  return learning_rate(StateFields(list()), "get_lr").value;
}
void OptimizerOptions::set_lr(double lr) { learning_rate(StateFields(list()), "set_lr").set(lr); }

void OptimizerOptions::validate() const {
  auto* self = const_cast<OptimizerOptions*>(this);  // as in list()
  if (StateFields::in_range([self](StateFields& f) { self->fields(f); })) return;
  const StateFields options(list());
  const StateFields::Field& bad = *options.out_of_range();
  halftape::detail::fail(options.owner, ": Invalid ", words_for(bad.name), ": ", bad.value,
                         " is not in ", bad.range);
}

void OptimizerOptions::inherit(const OptimizerOptions& defaults) {
  if (const auto fresh = unset())
    StateFields(list()).inherit(StateFields(fresh->list()), StateFields(defaults.list()));
}

std::map<std::string, double> OptimizerOptions::to_map() const {
  const StateFields options(list());
  if (options.all().empty()) missing("to_map");
  return options.save();
}

void OptimizerOptions::from_map(const std::map<std::string, double>& saved) {
  const StateFields options(list());
  if (options.all().empty()) missing("from_map");
  options.load(saved, StateFields::Unknown::Ignore, [this] { validate(); });
}

OptimizerParamGroup::OptimizerParamGroup(const OptimizerParamGroup& other)
    : initial_lr(other.initial_lr),
      params_(other.params_),
      names_(other.names_),
      options_(other.options_ ? other.options_->clone() : nullptr) {}

std::map<std::string, double> OptimizerParamGroup::to_map() const {
  std::map<std::string, double> numbers = options().to_map();
  if (initial_lr) numbers[kInitialLr] = *initial_lr;
  return numbers;
}

namespace {
std::atomic<uint64_t> next_id{0};

std::atomic<bool> told_of_old_interface{false};
void old_interface(const char* name) {
  if (told_of_old_interface)
    warn(std::string("Optimizer::") + name +
         "() will be removed from LibTorch; param_groups() stays");
}
}  // namespace

void warn_of_old_interface(bool on) { told_of_old_interface = on; }

Optimizer::Optimizer(const std::vector<OptimizerParamGroup>& groups,
                     std::unique_ptr<OptimizerOptions> defaults)
    : id_(next_id.fetch_add(1, std::memory_order_relaxed)), defaults_(std::move(defaults)) {
  HALFTAPE_CHECK(defaults_, "optimizer: expected default options, got null");
  defaults_->validate();
  HALFTAPE_CHECK(!groups.empty(), "optimizer: no parameters were given, nor a group for them");
  for (const OptimizerParamGroup& group : groups) add_param_group(group);
}

Optimizer::~Optimizer() = default;

void Optimizer::add_param_group(const OptimizerParamGroup& group) {
  OptimizerParamGroup added(group);
  if (!added.has_options()) added.set_options(defaults_->clone());
  check_options(added.options());
  added.options().inherit(*defaults_);
  added.options().validate();
  check_added(added.params());
  groups_.push_back(std::move(added));
}

void Optimizer::add_parameters(const std::vector<Tensor>& parameters) {
  old_interface("add_parameters");
  check_added(parameters);
  std::vector<Tensor>& first = groups_[0].params();
  first.insert(first.end(), parameters.begin(), parameters.end());
}

void Optimizer::check_added(const std::vector<Tensor>& added) const {
  std::set<const detail::TensorImpl*> seen;
  for (const Tensor& p : parameters_of(groups_)) seen.insert(p.impl());
  for (const Tensor& p : added) {
    HALFTAPE_CHECK(p.defined() && p.is_floating_point(),
                   "optimizer: a parameter is undefined or not floating-point");
    HALFTAPE_CHECK(
        !overlaps_itself(p.sizes(), p.strides()), "optimizer: of a parameter of shape ", p.sizes(),
        ", several elements are one place in memory, as of expanded tensors; ", "clone() it first");
    HALFTAPE_CHECK(p.is_leaf(), "optimizer: can't optimize a non-leaf tensor (", p.sizes(),
                   ", made by an operation)");
    HALFTAPE_CHECK(
        seen.insert(p.impl()).second,
        "optimizer: some parameters appear in more than one parameter group, or twice in "
        "one, as those of a module that is registered under two names: one of shape ",
        p.sizes(), " appears twice; pass it once");
  }
}

Tensor Optimizer::step(LossClosure closure) {  // NOLINT: as LibTorch
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

void Optimizer::check_gradient(const Tensor& p, const StepControl& control, GradParts parts) {
  const Tensor& g = p.grad();
  if (!g.defined()) return;
  check_mark(g, "Optimizer::step",
             control.inv_scale.defined() ? GradTag::Use::Scaled : GradTag::Use::Unscaled, parts);
  HALFTAPE_CHECK(g.sizes() == p.sizes() && g.device() == p.device() && g.is_floating_point(),
                 "optimizer: a gradient (", g.sizes(), ", ", g.dtype(), ", ", g.device(),
                 ") does not fit its parameter (", p.sizes(), ", ", p.dtype(), ", ", p.device(),
                 ")");
}

void check_verdict(const Tensor& g) {
  const Array verdict = verdict_on(g);
  HALFTAPE_CHECK(!verdict.defined() || read_double(verdict) == 0,
                 "Optimizer::step: a GradScaler found that the gradients, or the loss, are not "
                 "finite; call scaler.step(optimizer), which skips such a step");
}

namespace {
/// The verdict on a gradient, for a step that was given none: returned if the device is to decide
/// by it. Otherwise the host reads it here, and throws if it is bad.
Array verdict_for_device(const Tensor& g, bool supports_control) {
  Array verdict = verdict_on(g);
  const bool host_would_wait =
      verdict.defined() && (!verdict.device().is_cpu() || Capture::active_or_tried());
  if (!verdict.defined() || (supports_control && host_would_wait)) return verdict;
  check_verdict(g);
  return {};
}
}  // namespace

void Optimizer::run(const StepControl& given) {
  const OpTimer span("Optimizer::step", OpWatcher::Phase::Step);
  const NoGradGuard no_grad;
  const FlatState in_regions(flat_);
  for (FlatRegion& region : flat_) region.attach();
  // Check everything before the first group changes.
  std::vector<std::vector<Tensor>> ready;
  ready.reserve(groups_.size());
  StepControl control = given;
  bool empty = true;
  for (const OptimizerParamGroup& group : groups_) {
    check_options(group.options());
    group.options().validate();
    auto& with_grad = ready.emplace_back();
    with_grad.reserve(group.params().size());
    for (const Tensor& p : group.params()) {
      empty = false;
      check_gradient(p, given, takes_parts());
      if (!control.found_inf.defined())
        control.found_inf = verdict_for_device(p.grad(), supports_control());
      if (p.grad().defined()) with_grad.push_back(p);
    }
    check_state(group.options(), with_grad);
  }
  HALFTAPE_CHECK(!empty, "optimizer: no parameters were given; are the modules registered?");
  update_groups(ready, control);
}

void Optimizer::update_groups(const std::vector<std::vector<Tensor>>& ready,
                              const StepControl& control) {
  for (size_t i = 0; i < groups_.size(); ++i)
    if (!ready[i].empty()) update(groups_[i].options(), ready[i], control);
}

void Optimizer::update(const OptimizerOptions&, const std::vector<Tensor>&, const StepControl&) {
  ::halftape::detail::fail("optimizer: this one overrides neither update() nor step()");
}

void Optimizer::zero_grad(bool set_to_none) {
  const NoGradGuard no_grad;
  std::vector<const FlatRegion*> zeroed;
  for (FlatRegion& region : flat_) {
    region.attach();
    if (!set_to_none && region.zero_gradients()) zeroed.push_back(&region);
  }
  for (OptimizerParamGroup& group : groups_) {
    for (Tensor& p : group.params()) {
      Tensor& g = p.mutable_grad();
      if (!g.defined()) continue;
      set_partial(g, false);
      if (std::any_of(zeroed.begin(), zeroed.end(), [&](auto* r) { return r->covers(p); }))
        continue;
      if (set_to_none)
        g = Tensor();
      else
        zero_gradient(p);
    }
  }
}

std::vector<Tensor> parameters_of(const std::vector<OptimizerParamGroup>& groups) {
  std::vector<Tensor> all;
  for (const OptimizerParamGroup& group : groups)
    all.insert(all.end(), group.params().begin(), group.params().end());
  return all;
}

std::vector<Tensor> Optimizer::parameters() const {
  old_interface("parameters");
  return parameters_of(groups_);
}

size_t Optimizer::size() const {
  old_interface("size");
  return parameters_of(groups_).size();
}

ParamState& Optimizer::state(const Tensor& parameter) {
  const auto found = state_.find(parameter.impl());
  if (found != state_.end()) return found->second;
  held_.push_back(parameter);
  return state_[parameter.impl()];
}

const ParamState& Optimizer::state_of(const Tensor& parameter) const {
  static const auto& none = *new ParamState;  // NOLINT: statics may ask in their destructors
  const auto found = state_.find(parameter.impl());
  return found == state_.end() ? none : found->second;
}

StateEntry Optimizer::expected_state(const std::string& key, const Tensor& parameter,
                                     const std::map<std::string, double>& options) const {
  return state_entry(key, parameter, options);
}

void Optimizer::check_names(const ParamState&, const Tensor&, const OptimizerOptions&,
                            const std::string&, Mismatches&) const {}

void Optimizer::check_movable(const std::vector<Tensor>& params) const {
  const auto check = [](const Array& a, const auto&... what) {
    HALFTAPE_CHECK(!a.buffer()->graphs_hold(), what...,
                   " is used by a Graph; call flatten() before the graph is captured");
    HALFTAPE_CHECK(a.unique(), what...,
                   " shares its bytes with another tensor: a view, a detach(), what a recorded ",
                   "graph or an open autocast region has saved; let go of that first");
  };
  for (const Tensor& p : params) {
    HALFTAPE_CHECK(!p.is_view(), "flatten: a parameter of shape ", p.sizes(),
                   " is a view of another tensor, which would not follow; use its base");
    check(p.array(), "flatten: a parameter of shape ", p.sizes());
    for (const auto& [key, value] : state_of(p))
      check(value, "flatten: \"", key, "\" of a parameter of shape ", p.sizes());
  }
}

std::vector<FlatRegion>& Optimizer::flatten() {
  HALFTAPE_CHECK(!Capture::active_or_tried(),
                 "flatten: inside the step of a Graph; call it before the graph is made");
  std::vector<std::vector<Tensor>> wanted;
  for (const OptimizerParamGroup& group : groups_) {
    const size_t first = wanted.size();
    for (const Tensor& p : group.params()) {
      auto alike = std::find_if(
          wanted.begin() + static_cast<std::ptrdiff_t>(first), wanted.end(),
          [&](const auto& r) { return r[0].dtype() == p.dtype() && r[0].device() == p.device(); });
      if (alike == wanted.end()) alike = wanted.emplace(alike);
      alike->push_back(p);
    }
  }
  const auto kept = [&](const std::vector<Tensor>& params) {
    return std::find_if(flat_.begin(), flat_.end(),
                        [&](const FlatRegion& r) { return r.holds(params); });
  };
  for (const auto& params : wanted)
    if (kept(params) == flat_.end()) check_movable(params);
  // All memory is there before the first parameter moves.
  std::vector<std::optional<FlatRegion>> fresh(wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i)
    if (kept(wanted[i]) == flat_.end()) fresh[i].emplace(FlatRegion(wanted[i]));
  std::vector<FlatRegion> all;
  all.reserve(wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i)
    all.push_back(std::move(fresh[i] ? *fresh[i] : *kept(wanted[i])));
  flat_.swap(all);  // those that are not kept go at the end
  for (size_t i = 0; i < flat_.size(); ++i) {
    fresh[i] ? flat_[i].move_in() : flat_[i].attach();
    for (const Tensor& p : flat_[i].params())
      if (const auto state = state_.find(p.impl()); state != state_.end())
        flat_[i].adopt(p, state->second);
  }
  return flat_;
}

}  // namespace halftape::optim
