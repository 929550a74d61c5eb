// Reading an option back from a saved state.
#pragma once
#include <map>
#include <string>

#include "halftape/core/check.h"

namespace halftape::optim {

inline double saved_option(const std::map<std::string, double>& saved, const char* key) {
  const auto found = saved.find(key);
  HALFTAPE_CHECK(found != saved.end(), "optimizer: the saved state has no option \"", key, "\"");
  return found->second;
}

/// Throws unless the option lies in [low, high).
inline void check_option(const char* optimizer, const char* option, double value, double low,
                         double high) {
  HALFTAPE_CHECK(value >= low && value < high, optimizer, ": ", option, " ", value, " is not in [",
                 low, ", ", high, ")");
}

}  // namespace halftape::optim
