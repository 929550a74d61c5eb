#include "halftape/optim/schedulers/scheduler_state.h"

#include <cmath>
#include <type_traits>

#include "halftape/optim/state/mismatches.h"

namespace halftape::optim {

template <class T>
void SchedulerFields::put(const std::string& name, T& value) {
  fields_.push_back({prefix_ + name, static_cast<double>(value), !std::is_same_v<T, double>,
                     [&value](double saved) { value = static_cast<T>(saved); }});
}

void SchedulerFields::number(const std::string& name, double& value) { put(name, value); }
void SchedulerFields::count(const std::string& name, int64_t& value) { put(name, value); }
void SchedulerFields::flag(const std::string& name, bool& value) { put(name, value); }
void SchedulerFields::numbers(const std::string& name, std::vector<double>& values) {
  for (size_t i = 0; i < values.size(); ++i) put(name + "." + std::to_string(i), values[i]);
}
void SchedulerFields::counts(const std::string& name, std::vector<int64_t>& values) {
  for (size_t i = 0; i < values.size(); ++i) put(name + "." + std::to_string(i), values[i]);
}

void SchedulerFields::part(const std::string& name, const List& list) {
  const std::string before = prefix_;
  prefix_ += name + ".";
  list(*this);
  prefix_ = before;
}

SchedulerState SchedulerFields::save(const List& list) {
  SchedulerFields all;
  list(all);
  SchedulerState saved;
  for (const Field& field : all.fields_) saved[field.name] = field.value;
  return saved;
}

void SchedulerFields::load(const SchedulerState& saved, const List& list) {
  SchedulerFields all;
  list(all);
  Differences differences;
  SchedulerState unknown = saved;
  for (const Field& field : all.fields_) {
    const auto found = saved.find(field.name);
    if (found == saved.end())
      differences.add("it has no \"", field.name, "\"");
    else if (field.whole && found->second != std::floor(found->second))
      differences.add("\"", field.name, "\" is ", found->second, ", expected a whole number");
    unknown.erase(field.name);
  }
  for (const auto& [name, value] : unknown) differences.add("this schedule has no \"", name, "\"");
  differences.check("LRScheduler: the saved state does not fit");
  for (const Field& field : all.fields_) field.set(saved.at(field.name));
}

}  // namespace halftape::optim
