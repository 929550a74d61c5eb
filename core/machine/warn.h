// Warnings: what a user should know and need not act on.
#pragma once
#include <functional>
#include <string>

namespace halftape {

/// Where warnings go; standard error at first.
using WarningFunction = std::function<void(const std::string& message)>;
/// Sets the handler of the process; returns the former one. An empty one: standard error again.
WarningFunction set_warning_handler(WarningFunction handler);
void warn(const std::string& message);

}  // namespace halftape
