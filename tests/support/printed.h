// What << makes of a value.
#pragma once
#include <sstream>
#include <string>

namespace halftape::testing {

template <class T>
std::string printed(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

}  // namespace halftape::testing
