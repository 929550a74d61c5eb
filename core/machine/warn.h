// Warnings: a user should know them, but need not act.
#pragma once
#include <functional>
#include <string>

namespace halftape {

/// Receives warnings; the default handler writes to standard error.
using WarningFunction = std::function<void(const std::string& message)>;
/// Sets the handler of the process and returns the former one. An empty one is the default.
WarningFunction set_warning_handler(WarningFunction handler);
/// Gives a message to the handler: stderr unless one is set.
void warn(const std::string& message);

}  // namespace halftape
