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
    saved.parameters[names[i].name] = {names[i].group, std::move(by_position.state[i])};
  return saved;
}

void Optimizer::load_state_dict(const NamedOptimizerState& saved) {
  const std::vector<Named> names = names_of(groups_, "load_state_dict");
  const std::vector<Tensor> params = parameters_of(groups_);
  Mismatches mismatches;
  if (saved.groups.size() != groups_.size())
    mismatches.add("it has ", saved.groups.size(), " groups, this optimizer ", groups_.size());
  std::set<std::string> known;
  OptimizerState by_position{saved.groups, {}};
  for (size_t i = 0; i < names.size(); ++i) {
    const auto& [name, group] = names[i];
    known.insert(name);
    const auto found = saved.parameters.find(name);
    if (found == saved.parameters.end()) {
      mismatches.add("it has no \"", name, "\"");
      continue;
    }
    const NamedOptimizerState::Parameter& parameter = found->second;
    if (parameter.group != group)
      mismatches.add("\"", name, "\" is in its group ", parameter.group,
                     ", and in this optimizer's group ", group);
    if (parameter.group < saved.groups.size()) {
      for (const auto& [key, value] : parameter.state)
        mismatches.fits("\"" + key + "\" of \"" + name + "\"", value,
                        expected_state(key, params[i], saved.groups[parameter.group]));
    }
    by_position.state.push_back(parameter.state);
  }
  for (const auto& [name, parameter] : saved.parameters)
    if (!known.count(name)) mismatches.add("this optimizer has no \"", name, "\"");
  mismatches.check("optimizer: the saved state does not fit");
  load_state_dict(by_position);
}

}  // namespace halftape::optim
