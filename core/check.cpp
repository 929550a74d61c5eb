#include "halftape/core/check.h"

#include <locale>
#include <sstream>

#include "halftape/core/machine/backtrace.h"
#include "halftape/core/place.h"

namespace halftape {

// Not inlined, so that its return address begins the functions of which none is this library's
// machinery.
[[gnu::noinline]] Error::Error(const std::string& text) : std::runtime_error(text) {
  if (!detail::backtraces_wanted()) [[likely]]
    return;
  try {
    // What was made of another error's text keeps that one's functions.
    if (text.find(detail::kBacktrace) == std::string::npos)
#if defined(__EMSCRIPTEN__)  // which ends the program when it is asked
      traced_ = std::make_shared<const std::string>(text + detail::backtrace_from(nullptr));
#else
      traced_ = std::make_shared<const std::string>(
          text + detail::backtrace_from(__builtin_return_address(0)));
#endif
  } catch (...) {  // NOLINT: the error counts, without a backtrace if need be
  }
}

namespace detail {

thread_local constinit const char* op_at_work = nullptr;
thread_local constinit const Place* place_at_work = nullptr;
constinit std::atomic<std::string (*)()> call_at_work = nullptr;

std::string printed(FunctionRef<void(std::ostream& out)> print) {
  std::ostringstream text;
  text.imbue(std::locale::classic());  // a global one may group digits
  print(text);
  return text.str();
}
void fail_with(FunctionRef<void(std::ostream& out)> print) {
  throw Error(in_its_name(printed(print)));
}

std::string in_its_name(std::string text) {
  const std::string op = op_at_work ? std::string(op_at_work) + ": " : "";
  if (!text.starts_with(op)) text = op + text;
  if (place_at_work) text = place_at_work->path + " (" + place_at_work->kind + "): " + text;
  // What was made of another error's text keeps that one's call.
  if (const auto call = call_at_work.load(); call && text.find(kCall) == text.npos) text += call();
  return text;
}

}  // namespace detail
}  // namespace halftape
