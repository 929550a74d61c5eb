// What a call throws.
#pragma once
#include <string>

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
inline bool has(const std::string& whole, const std::string& part) {
  return whole.find(part) != std::string::npos;
}

}  // namespace halftape::testing
