// Errors: one exception type, and a check that says what was wrong, with which values, and the way
// out.
#pragma once
#include <atomic>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>

#include "halftape/core/function_ref.h"

namespace halftape {

/// Everything the library throws for wrong arguments or wrong state. Nothing aborts.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& text);
  /// With HALFTAPE_BACKTRACE=1 in the environment, the functions in which it was thrown follow the
  /// text.
  const char* what() const noexcept override {
    return traced_ ? traced_->c_str() : what_without_backtrace();
  }
  const char* what_without_backtrace() const noexcept { return std::runtime_error::what(); }
  std::string msg() const { return what_without_backtrace(); }  // LibTorch's name for it

 private:
  std::shared_ptr<const std::string> traced_;  // null without a backtrace
};

/// Memory could not be had; the message says how much was asked for and how much is live.
class OutOfMemoryError : public Error {
 public:
  using Error::Error;
};

namespace detail {
/// The op that this thread is running, while it calls the ops that it is made of; otherwise null.
extern thread_local constinit const char* op_at_work;

/// In anomaly mode: where the user called the library, "\nin the call at file:line (function)", or
/// "" if that has no name. Otherwise null.
extern std::atomic<std::string (*)()> call_at_work;

/// The text with the module at work and that op before it, unless it begins with the op, and with
/// the call behind it.
std::string in_its_name(std::string text);

// Printing and throwing stand elsewhere, once for all kinds of parts: there are hundreds.

/// What `print` writes.
std::string printed(FunctionRef<void(std::ostream& out)> print);
/// Throws an Error with it, in_its_name().
[[noreturn]] void fail_with(FunctionRef<void(std::ostream& out)> print);

/// The parts, printed one after the other.
template <class... Parts>
std::string str(const Parts&... parts) {
  return printed([&](std::ostream& out) { (out << ... << parts); });
}

/// Not inlined, so that the functions which check are.
template <class... Parts>
[[noreturn, gnu::noinline, gnu::cold]] void fail(const Parts&... parts) {
  fail_with([&](std::ostream& out) { (out << ... << parts); });
}
}  // namespace detail
}  // namespace halftape

/// HALFTAPE_CHECK(condition, parts...): throws Error with the parts joined when the condition is
/// false.
#define HALFTAPE_CHECK(condition, ...)       \
  do {                                       \
    if (!(condition)) [[unlikely]]           \
      ::halftape::detail::fail(__VA_ARGS__); \
  } while (false)
