// The start of a thread. Where the system refuses one, std::thread throws a std::system_error whose
// text, "Resource temporarily unavailable", says nothing of threads.
#pragma once
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "halftape/core/check.h"

namespace halftape::detail {

/// start(), which starts a thread by the name of `who`. Throws Error where the system refuses it,
/// with what the user may do.
template <class Start>
auto starting_thread(std::string_view who, Start start,
                     std::string_view remedy = "end others, or raise the limit on threads") {
  try {
    return start();
  } catch (const std::system_error& error) {
    fail(who, " does not start (", error.what(), "); ", remedy);
  }
}

/// A thread that calls f().
template <class F>
std::thread start_thread(std::string_view who, F f) {
  return starting_thread(who, [&] { return std::thread(std::move(f)); });
}

}  // namespace halftape::detail
