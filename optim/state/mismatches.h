// Everything in a saved state that does not fit, collected for one error.
#pragma once
#include <sstream>
#include <string>

#include "halftape/core/array.h"
#include "halftape/core/check.h"

namespace halftape::optim {

/// The expected form of a saved array.
struct StateEntry {
  Shape shape;
  Dtype dtype;
};

class Mismatches {
 public:
  template <class... Parts>
  void add(const Parts&... parts) {
    ((text_ << "\n  ") << ... << parts);
    any_ = true;
  }
  /// Adds an array that has another shape or dtype than expected; returns whether it fits.
  bool fits(const std::string& name, const Array& found, const StateEntry& expected) {
    if (found.shape() == expected.shape && found.dtype() == expected.dtype) return true;
    add(name, " is ", found.dtype(), " ", found.shape(), ", expected ", expected.dtype, " ",
        expected.shape);
    return false;
  }
  /// Throws `what` and the list, unless the list is empty.
  void check(const std::string& what) const { HALFTAPE_CHECK(!any_, what, ":", text_.str()); }

 private:
  std::ostringstream text_;
  bool any_ = false;
};

}  // namespace halftape::optim
