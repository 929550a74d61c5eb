// The functions in which an error was thrown, for HALFTAPE_BACKTRACE=1.
#pragma once
#include <span>
#include <string>

namespace halftape::detail {

/// True if HALFTAPE_BACKTRACE asked for them when this was first called.
bool backtraces_wanted();
/// For tests: from now on, in place of the variable.
void want_backtraces(bool wanted);

/// In anomaly mode this stands before the user's call.
inline constexpr const char* kCall = "\nin the call at ";
/// The line that begins a backtrace.
inline constexpr const char* kBacktrace = "\nthrown in:";
/// That line and the running functions, from the one on that `return_address` lies in.
std::string backtrace_from(const void* return_address);
/// Further lines, one for each function, without the newest ones that only make errors or record
/// calls; and the commands that give file and line. `addresses` are those that calls return to.
/// Empty where the system does not tell them.
std::string described(std::span<void* const> addresses);

}  // namespace halftape::detail
