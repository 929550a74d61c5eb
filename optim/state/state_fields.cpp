#include "halftape/optim/state/state_fields.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "halftape/optim/state/mismatches.h"

namespace halftape::optim {
namespace {

/// True for the whole numbers of which a double holds each, so that they convert to int64.
bool is_whole(double x) { return x == std::floor(x) && std::abs(x) <= 0x1p53; }

}  // namespace

bool StateFields::in_range(const List& list) {
  StateFields checked;
  checked.only_ranges_ = true;
  list(checked);
  return checked.in_range_;
}

void StateFields::put(Field field) {
  field.name.insert(0, prefix_);
  fields_.push_back(std::move(field));
}

void StateFields::part(const std::string& name, const List& list) {
  const std::string before = prefix_;
  prefix_ += name + ".";
  list(*this);
  prefix_ = before;
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

void StateFields::load(const Numbers& saved, Unknown names) const {
  Mismatches mismatches;
  Numbers unknown = saved;
  for (const Field& field : fields_) {
    const auto found = saved.find(field.name);
    if (found == saved.end())
      mismatches.add("it has no \"", field.name, "\"");
    else if (std::isnan(found->second))
      mismatches.add("\"", field.name, "\" is nan, expected a number");
    else if (field.whole && !is_whole(found->second))
      mismatches.add("\"", field.name, "\" is ", found->second, ", expected a whole number");
    else if (field.range && !field.range->contains(found->second))
      mismatches.add("\"", field.name, "\" is ", found->second, ", expected a number in [",
                     field.range->low, ", ", field.range->high, ")");
    unknown.erase(field.name);
  }
  if (names == Unknown::Refuse)
    for (const auto& [name, value] : unknown)
      mismatches.add("nothing here is called \"", name, "\"");
  mismatches.check(std::string(owner) + ": the saved state does not fit");
  for (const Field& field : fields_) field.set(saved.at(field.name));
}

}  // namespace halftape::optim
