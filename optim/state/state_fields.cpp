#include "halftape/optim/state/state_fields.h"

#include <algorithm>
#include <set>
#include <utility>

#include "halftape/optim/state/mismatches.h"

namespace halftape::optim {

void StateFields::put(Field field) {
  if (only_ranges_) {
    in_range_ = in_range_ && field.accepts(field.value);
    return;
  }
  field.name.insert(0, prefix_);
  fields_.push_back(std::move(field));
}

void StateFields::part(const std::string& name, const List& list) {
  const std::string prefix = std::exchange(prefix_, prefix_ + name + ".");
  const char* const whole = owner;
  list(*this);
  prefix_ = prefix;
  owner = whole;
}

const StateFields::Field* StateFields::out_of_range() const {
  const auto found = std::find_if(fields_.begin(), fields_.end(),
                                  [](const Field& field) { return !field.accepts(field.value); });
  return found == fields_.end() ? nullptr : &*found;
}

const StateFields::Field* StateFields::find(const std::string& name) const {
  const auto found = std::find_if(fields_.begin(), fields_.end(),
                                  [&](const Field& field) { return field.name == name; });
  return found == fields_.end() ? nullptr : &*found;
}

StateFields::Numbers StateFields::save() const {
  Numbers saved;
  for (const Field& field : fields_) saved[field.name] = field.value;
  return saved;
}

void StateFields::inherit(const StateFields& unset, const StateFields& defaults) const {
  const auto option = [](const std::string& name) {
    return name.substr(0, name.find_last_not_of("0123456789") + 1);
  };
  std::set<std::string> given;
  for (const Field& field : fields_)
    if (const Field* const fresh = unset.find(field.name); !fresh || fresh->value != field.value)
      given.insert(option(field.name));
  for (const Field& field : fields_)
    if (const Field* const base = defaults.find(field.name);
        base && !given.count(option(base->name)))
      field.set(base->value);
}

void StateFields::load(const Numbers& saved, Unknown names,
                       const std::function<void()>& check) const {
  Mismatches mismatches;
  Numbers unknown = saved;
  for (const Field& field : fields_) {
    const auto found = saved.find(field.name);
    if (found == saved.end())
      mismatches.add("it has no \"", field.name, "\"");
    else if (!field.accepts(found->second))
      mismatches.add("\"", field.name, "\" is ", found->second, ", expected a ",
                     field.whole ? "whole " : "", "number in ", field.range);
    unknown.erase(field.name);
  }
  if (names == Unknown::Refuse)
    for (const auto& [name, value] : unknown)
      mismatches.add("nothing here is called \"", name, "\"");
  mismatches.check(std::string(owner) + ": the saved state does not fit");
  for (const Field& field : fields_) field.set(saved.at(field.name));
  if (!check) return;
  try {
    check();
  } catch (...) {
    for (const Field& field : fields_) field.set(field.value);
    throw;
  }
}

}  // namespace halftape::optim
