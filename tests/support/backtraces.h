// Errors with the functions they were thrown in.
#pragma once
#include <string>

#include "halftape/core/machine/backtrace.h"

namespace halftape::testing {

/// For a scope: as with HALFTAPE_BACKTRACE=1.
class [[nodiscard]] Backtraces {
 public:
  [[nodiscard]] Backtraces() { detail::want_backtraces(true); }
  ~Backtraces() { detail::want_backtraces(before_); }
  Backtraces(const Backtraces&) = delete;
  Backtraces& operator=(const Backtraces&) = delete;

 private:
  bool before_ = detail::backtraces_wanted();
};

/// The first command that an error's text says to type.
inline std::string addr2line_of(const std::string& text) {
  const size_t begin = text.find("addr2line ");
  return begin == text.npos ? "" : text.substr(begin, text.find('\n', begin) - begin);
}

}  // namespace halftape::testing
