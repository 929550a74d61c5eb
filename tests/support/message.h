// What a call throws.
#pragma once
#include <string>
#include <string_view>

#include "halftape/core/check.h"

namespace halftape::testing {

/// The message of the E that f() throws; empty when it throws none.
template <class E = Error, class F>
std::string message(F f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return {};
}

/// Does `part` stand in `whole`?
inline bool has(std::string_view whole, std::string_view part) {
  return whole.find(part) != std::string_view::npos;
}

}  // namespace halftape::testing
