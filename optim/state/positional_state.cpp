// An optimizer's state by the position of its parameters.
#include <algorithm>
#include <cmath>
#include <utility>

#include "halftape/core/contract/backend.h"
#include "halftape/optim/state/flat_storage.h"
#include "halftape/optim/state/mismatches.h"
#include "halftape/optim/state/param_storage.h"

namespace halftape::optim {

/// What a saved state says, checked and on the devices of the parameters.
struct Optimizer::Loaded {
  std::vector<std::unique_ptr<OptimizerOptions>> options;  // of each group
  std::vector<std::optional<double>> initial_lrs;
  std::map<const halftape::detail::TensorImpl*, ParamState> state;
};

OptimizerState Optimizer::state_dict() const {
  check_whole();
  OptimizerState saved;
  saved.ordered = state_is_ordered();
  for (const OptimizerParamGroup& group : groups_) {
    saved.groups.push_back(group.to_map());
    saved.group_sizes.push_back(group.params().size());
  }
  for (const Tensor& p : parameters_of(groups_)) {
    ParamState& copy = saved.state.emplace_back();
    for (const auto& [key, value] : state_of(p)) copy[key] = value.clone();
  }
  return saved;
}

void Optimizer::load_state_dict(const OptimizerState& saved) {
  Mismatches mismatches;
  load(
      saved, [](size_t i) { return "parameter " + std::to_string(i); }, mismatches);
}

void Optimizer::load(const OptimizerState& saved, const std::function<std::string(size_t)>& called,
                     Mismatches& mismatches) {
  const size_t count = parameters_of(groups_).size();
  if (saved.groups.size() != groups_.size())
    mismatches.add("it has ", saved.groups.size(), " groups, this optimizer ", groups_.size());
  if (saved.state.size() != count)
    mismatches.add("it has ", saved.state.size(), " parameters, this optimizer ", count);
  Loaded loaded;
  size_t i = 0;
  for (size_t g = 0; g < std::min(groups_.size(), saved.groups.size()); ++g) {
    const size_t size = groups_[g].params().size();
    if (g < saved.group_sizes.size() && saved.group_sizes[g] != size)
      mismatches.add("its group ", g, " has ", saved.group_sizes[g],
                     " parameters, this optimizer's ", size);
    std::map<std::string, double> numbers = saved.groups[g];
    const auto initial = numbers.extract(kInitialLr);
    loaded.initial_lrs.push_back(initial ? std::optional(initial.mapped()) : std::nullopt);
    if (initial && !kNonNegative.contains(initial.mapped()))
      mismatches.add('"', kInitialLr, "\" of group ", g, " is ", initial.mapped(), ", not in ",
                     kNonNegative);
    std::unique_ptr<OptimizerOptions>& options =
        loaded.options.emplace_back(groups_[g].options().clone());
    try {
      options->from_map(numbers);
      options->validate();
    } catch (const Error& e) {
      mismatches.add("group ", g, ": ", e.what());
      options = groups_[g].options().clone();  // the present options judge its tensors
      numbers = groups_[g].options().to_map();
    }
    for (const Tensor& p : groups_[g].params()) {
      if (i == saved.state.size()) break;
      const std::string of = " of " + called(i);
      for (const auto& [key, value] : saved.state[i]) {
        std::string name = '"' + key;
        name += '"' + of;
        const StateEntry expected = expected_state(key, p, numbers);
        if (!mismatches.fits(name, value, expected)) continue;
        if (const double n = expected.count ? read_double(value) : 0;
            !(n >= 0 && n <= 0x1p53 && n == std::floor(n)))
          mismatches.add(name, " is ", n, ", expected a whole number from 0 on");
        loaded.state[p.impl()][key] = value.to(p.device()).clone();
      }
      check_names(saved.state[i++], p, *options, of, mismatches);
    }
  }
  mismatches.check("optimizer: the saved state does not fit");
  put_in_place(loaded);
}

void Optimizer::put_in_place(Loaded& loaded) {
  for (const Tensor& p : parameters_of(groups_))
    if (loaded.state.count(p.impl())) state(p);  // makes its entry
  for (size_t k = 0; k < groups_.size(); ++k) {
    groups_[k].assign_options(std::move(loaded.options[k]));
    groups_[k].initial_lr = loaded.initial_lrs[k];
  }
  // Keep the map's entries in place: state() has returned references to them.
  // From here on no memory is asked for.
  for (auto& [parameter, state] : state_) {
    const auto found = loaded.state.find(parameter);
    if (found == loaded.state.end()) {
      state.clear();
      continue;
    }
    // Copy into existing arrays where they fit: a Graph may use their bytes.
    for (auto& [key, value] : found->second) {
      const auto old = state.find(key);
      if (old == state.end() || old->second.shape() != value.shape() ||
          old->second.dtype() != value.dtype() || old->second.device() != value.device())
        continue;
      backend(value.device()).copy(old->second, value);
      old->second.bump_version();
      value = old->second;
    }
    state = std::move(found->second);
  }
  for (FlatRegion& region : flat_)
    for (const Tensor& p : region.params())
      if (const auto state = state_.find(p.impl()); state != state_.end())
        region.adopt(p, state->second);
  state_was_loaded();
}

}  // namespace halftape::optim
