// The library's warnings, for tests that expect them.
#pragma once
#include <string>
#include <vector>

#include "halftape/core/machine/warn.h"

namespace halftape::testing {

/// Collects warnings during its lifetime.
struct Warnings {
  std::vector<std::string> seen;
  WarningFunction before;
  Warnings() : before(set_warning_handler([this](const std::string& m) { seen.push_back(m); })) {}
  ~Warnings() { set_warning_handler(before); }
  Warnings(const Warnings&) = delete;
  Warnings& operator=(const Warnings&) = delete;
};

}  // namespace halftape::testing
