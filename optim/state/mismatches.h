// Everything in a saved state that does not fit, collected for one error.
#pragma once
#include <set>
#include <sstream>
#include <string>

#include "halftape/core/array.h"
#include "halftape/core/check.h"

namespace halftape::optim {

/// The expected form of a saved array.
struct StateEntry {
  Shape shape;
  Dtype dtype;
  bool any_float =
      false;           // a floating dtype will do: a moment's stays when its parameter's changes
  bool count = false;  // of events: a whole number from 0 to 2^53
};

class Mismatches {
 public:
  template <class... Parts>
  void add(const Parts&... parts) {
    ((text_ << "\n  ") << ... << parts);
    any_ = true;
  }
  /// Adds an array that is undefined, or has another shape or dtype than expected; returns whether
  /// it fits.
  bool fits(const std::string& name, const Array& found, const StateEntry& expected) {
    if (found.defined() && found.shape() == expected.shape &&
        (found.dtype() == expected.dtype ||
         (expected.any_float && is_floating_point(found.dtype()))))
      return true;
    add(name, " is ",
        found.defined() ? detail::str(found.dtype(), ' ', found.shape()) : "undefined",
        ", expected ", expected.dtype, " ", expected.shape);
    return false;
  }
  /// Adds the names that a saved map lacks, and those that are not expected.
  template <class Saved>
  void names(const Saved& saved, const std::set<std::string>& expected, const std::string& of) {
    for (const std::string& name : expected)
      if (!saved.count(name)) add("it has no \"", name, "\"", of);
    for (const auto& [name, value] : saved)
      if (!expected.count(name)) add("nothing here is called \"", name, "\"", of);
  }
  bool any() const { return any_; }
  /// Throws `what` and the list, unless the list is empty.
  void check(const std::string& what) const { HALFTAPE_CHECK(!any_, what, ":", text_.str()); }

 private:
  std::ostringstream text_;
  bool any_ = false;
};

}  // namespace halftape::optim
