// What of a saved state does not fit, collected, so that one error tells all of it.
#pragma once
#include <sstream>
#include <string>

#include "halftape/core/check.h"

namespace halftape::optim {

class Differences {
 public:
  template <class... Parts>
  void add(const Parts&... parts) {
    ((text_ << "\n  ") << ... << parts);
    any_ = true;
  }
  /// Throws `what` and the list, unless it is empty.
  void check(const std::string& what) const { HALFTAPE_CHECK(!any_, what, ":", text_.str()); }

 private:
  std::ostringstream text_;
  bool any_ = false;
};

}  // namespace halftape::optim
