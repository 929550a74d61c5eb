#include "halftape/core/machine/region.h"

#include <string>

#include "halftape/core/machine/warn.h"

namespace halftape::detail {
namespace {
void warn_once(const char* what, const char* text, std::atomic<bool>& warned) noexcept try {
  if (!warned.exchange(true)) warn(std::string(what) + text);
} catch (...) {  // of the user's handler
}
}  // namespace

void warn_of_thread(const char* what, std::atomic<bool>& warned) noexcept {
  warn_once(what,
            ": a region was destroyed in another thread than the one that began it, and stays open "
            "there; begin and end a region in each thread that needs one",
            warned);
}
void warn_of_order(const char* what, std::atomic<bool>& warned) noexcept {
  warn_once(what,
            ": a region ended before one that was begun inside it, which stays open; end the "
            "innermost region first",
            warned);
}

}  // namespace halftape::detail
