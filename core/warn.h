// Warnings: what a user should know and need not act on.
#pragma once
#include <functional>
#include <string>

namespace halftape {

/// Where warnings go; standard error at first.
using WarningHandler = std::function<void(const std::string& message)>;
/// Sets the handler of the process; returns the former one. An empty one: standard error again.
WarningHandler set_warning_handler(WarningHandler handler);
void warn(const std::string& message);

}  // namespace halftape
