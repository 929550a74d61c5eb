#include "halftape/optim/options.h"

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
  if (StateFields::in_range(list())) return;
  const StateFields options(list());
  for (const auto& [name, value, set, whole, range] : options.all())
    HALFTAPE_CHECK(!range || range->contains(value), options.owner, ": Invalid ", words_for(name),
                   ": ", value, " is not in [", range->low, ", ", range->high, ")");
}

std::map<std::string, double> OptimizerOptions::to_map() const {
  const StateFields options(list());
  if (options.all().empty()) missing("to_map");
  return options.save();
}

void OptimizerOptions::from_map(const std::map<std::string, double>& saved) {
  const StateFields options(list());
  if (options.all().empty()) missing("from_map");
  options.load(saved, StateFields::Unknown::Ignore);
}

}  // namespace halftape::optim
