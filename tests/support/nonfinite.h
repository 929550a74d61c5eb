// The numbers that are not finite.
#pragma once
#include <limits>

namespace halftape::testing {

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

}  // namespace halftape::testing
