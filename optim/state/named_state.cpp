// An optimizer's state by the names of its parameters.
#include <set>

#include "halftape/optim/state/mismatches.h"
#include "halftape/optim/state/param_storage.h"

namespace halftape::optim {
namespace {

struct Named {
  std::string name;
  size_t group;
};

/// The names of all parameters, group by group.
std::vector<Named> names_of(const std::vector<OptimizerParamGroup>& groups, const char* call) {
  std::vector<Named> all;
  std::set<std::string> seen;
  for (size_t g = 0; g < groups.size(); ++g) {
    const std::vector<std::string>& names = groups[g].names();
    HALFTAPE_CHECK(names.size() == groups[g].params().size(), call, ": group ", g, " has ",
                   groups[g].params().size(), " parameters and ", names.size(),
                   " names; make the group of module->named_parameters()");
    for (const std::string& name : names) {
      HALFTAPE_CHECK(seen.insert(name).second, call, ": two parameters are called \"", name,
                     "\"; save by position with state_dict()");
      all.push_back({name, g});
    }
  }
  return all;
}

}  // namespace

NamedOptimizerState Optimizer::named_state_dict() const {
  const std::vector<Named> names = names_of(groups_, "named_state_dict");
  OptimizerState by_position = state_dict();
  NamedOptimizerState saved{std::move(by_position.groups), {}};
  for (size_t i = 0; i < names.size(); ++i)
    saved.parameters[names[i].name] = {names[i].group, std::move(by_position.state[i]),
                                       by_position.ordered ? std::optional(i) : std::nullopt};
  return saved;
}

void Optimizer::load_state_dict(const NamedOptimizerState& saved) {
  const std::vector<Named> names = names_of(groups_, "load_state_dict");
  Mismatches mismatches;
  std::set<std::string> known;
  OptimizerState by_position{saved.groups, std::vector<ParamState>(names.size())};
  for (size_t i = 0; i < names.size(); ++i) {
    const auto& [name, group] = names[i];
    known.insert(name);
    const auto found = saved.parameters.find(name);
    if (found == saved.parameters.end()) {
      mismatches.add("it has no \"", name, "\"");
      continue;
    }
    if (found->second.group != group)
      mismatches.add("\"", name, "\" is in its group ", found->second.group,
                     ", and in this optimizer's group ", group);
    if (const size_t place = found->second.place.value_or(i); place != i)
      mismatches.add("\"", name, "\" is its parameter ", place, ", this optimizer's parameter ", i,
                     ", and its state is of all parameters in their order");
    by_position.state[i] = found->second.state;
  }
  for (const auto& [name, parameter] : saved.parameters)
    if (!known.count(name)) mismatches.add("this optimizer has no \"", name, "\"");
  load(
      by_position, [&](size_t i) { return "\"" + names[i].name + "\""; }, mismatches);
}

}  // namespace halftape::optim
