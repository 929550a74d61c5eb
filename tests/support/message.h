// What a call throws.
#pragma once
#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "halftape/autograd/tensor_options.h"
#include "halftape/core/contract/backend.h"

namespace halftape::testing {

/// Waits for the default device: what has gone wrong there is thrown now.
inline void settle() { backend(get_default_device()).synchronize(); }

/// The message of the E that f() throws; empty when it throws none.
template <class E = Error, class F>
std::string message(F f) {
  try {
    f();
    settle();
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

/// The expression throws an Error that says so.
#define CHECK_REFUSED(expression, text) \
  CHECK_THROWS_WITH_AS(expression, doctest::Contains(text), halftape::Error)
