#include "halftape/nn/any_module.h"

namespace halftape::nn {

void detail::complete_arguments(const std::type_info& module, size_t count,
                                DefaultArguments defaults, std::vector<AnyValue>& arguments) {
  const size_t given = arguments.size();
  const std::string name = name_of(module);
  if (defaults.empty()) {
    HALFTAPE_CHECK(given == count, name, "'s forward() method expects ", count,
                   " argument(s), but received ", given, ". If ", name,
                   "'s forward() method has default arguments, please make sure the forward() "
                   "method is declared with a corresponding `FORWARD_HAS_DEFAULT_ARGS` macro.");
    return;
  }
  const size_t least = defaults.front().first;
  HALFTAPE_CHECK(least <= given && given <= count, name, "'s forward() method expects at least ",
                 least, " argument(s) and at most ", count, " argument(s), but received ", given,
                 ".");
  for (auto& [position, value] : defaults)
    if (position == arguments.size()) arguments.push_back(std::move(value));
  HALFTAPE_CHECK(arguments.size() == count, name, ": FORWARD_HAS_DEFAULT_ARGS has to give #", least,
                 " to #", count - 1, " of forward(), in order");
}

void detail::refuse_argument(size_t index, const std::type_info& expected,
                             const std::type_info& received) {
  const std::string type = name_of(received);
  halftape::detail::fail(
      "Expected argument #", index, " to be of type ", name_of(expected),
      ", but received value of type ", type,
      type.starts_with("std::tuple")
          ? ": the module before it returns several values, as LSTM does; put one between them "
            "whose forward() takes this tuple and returns the std::get<0>() of it"
          : "");
}

void AnyModule::check_holds(const char* call) const {
  HALFTAPE_CHECK(module_, "Cannot call ", call, "() on an empty AnyModule");
}

std::shared_ptr<Module> AnyModule::ptr() const {
  check_holds("ptr");
  return module_;
}
const std::type_info& AnyModule::type_info() const {
  check_holds("type_info");
  return *type_;
}

AnyModule AnyModule::clone(std::optional<Device> device) const {
  return module_ ? with(module_->clone(device)) : AnyModule();
}
AnyModule AnyModule::with(std::shared_ptr<Module> module) const {
  check_holds("with");
  return make_(std::move(module));
}

}  // namespace halftape::nn
