// Reductions: where they start, how they take one more element, how two parts join.
#pragma once
#include <limits>

#include "halftape/core/formula/words.h"

namespace halftape::formula {

struct Sum {
  static constexpr auto name = "sum";
  template <class S>
  HALFTAPE_HD static S start() {
    return S(0);
  }
  HALFTAPE_HD static auto step(const auto& acc, const auto& x) { return acc + x; }
};
struct Prod {
  static constexpr auto name = "prod";
  template <class S>
  HALFTAPE_HD static S start() {
    return S(1);
  }
  template <class T>
  HALFTAPE_HD static T step(const T& acc, const T& x) {
    if constexpr (std::is_integral_v<T>)  // wraps, as PyTorch's does; a signed overflow is
                                          // undefined
      return static_cast<T>(static_cast<uint64_t>(acc) * static_cast<uint64_t>(x));
    else
      return acc * x;
  }
};
struct Max {  // NaN wins
  static constexpr auto name = "amax";
  template <class S>
  HALFTAPE_HD static S start() {
    if constexpr (std::is_floating_point_v<S>)
      return -std::numeric_limits<S>::infinity();
    else
      return std::numeric_limits<S>::min();
  }
  HALFTAPE_HD static auto step(const auto& acc, const auto& x) {
    return where(acc != acc, acc, where(acc > x, acc, x));
  }
};
struct Min {
  static constexpr auto name = "amin";
  template <class S>
  HALFTAPE_HD static S start() {
    if constexpr (std::is_floating_point_v<S>)
      return std::numeric_limits<S>::infinity();
    else
      return std::numeric_limits<S>::max();
  }
  HALFTAPE_HD static auto step(const auto& acc, const auto& x) {
    return where(acc != acc, acc, where(acc < x, acc, x));
  }
};

using Reduce = Ops<Sum, Prod, Max, Min>;

}  // namespace halftape::formula

namespace halftape {

using ReduceOps = formula::Reduce;

}  // namespace halftape
