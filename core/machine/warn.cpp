#include "halftape/core/machine/warn.h"

#include <cstdio>
#include <mutex>
#include <utility>

namespace halftape {
namespace {

std::mutex mutex;
WarningFunction& current() {
  static auto* handler = new WarningFunction;  // NOLINT: statics may warn in their destructors
  return *handler;
}

}  // namespace

WarningFunction set_warning_handler(WarningFunction handler) {
  const std::lock_guard lock(mutex);
  return std::exchange(current(), std::move(handler));
}

void warn(const std::string& message) {
  WarningFunction handler;
  {
    const std::lock_guard lock(mutex);
    handler = current();  // called outside the lock, because it may set another handler
  }
  if (handler)
    handler(message);
  else
    std::fprintf(stderr, "halftape: warning: %s\n", message.c_str());
}

}  // namespace halftape
