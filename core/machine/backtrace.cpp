#include "halftape/core/machine/backtrace.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "halftape/core/machine/os.h"

namespace halftape::detail {
namespace {

constexpr size_t kMostFrames = 30, kOwnFrames = 10;

std::atomic<bool>& wanted() {
  static std::atomic<bool> w = os::is_asked_for("HALFTAPE_BACKTRACE");
  return w;
}

/// True for what stands between the user's mistake and the error: it is the same for all errors.
bool is_machinery(const std::string& function) {
  std::string name = function.substr(0, function.find_first_of("<("));
  name = name.substr(name.rfind(' ') + 1);  // a template's return type comes first
  constexpr const char* machinery[] = {"halftape::detail::fail",
                                       "halftape::out_of_memory",
                                       "halftape::Node::Node",
                                       "halftape::Node::note_call",
                                       "halftape::InputFile::fail",
                                       "halftape::autograd::call_site",
                                       "halftape::os::call_stack",
                                       "halftape::fail_file",
                                       "halftape::autograd::refuse_nonfinite",
                                       "halftape::OutOfMemoryError::",
                                       "halftape::FileError::",
                                       "halftape::Error::"};
  // A sanitizer's own backtrace(), by either of its names; libc's takes no frame.
  return name == "backtrace" || name == "__interceptor_backtrace" ||
         std::any_of(std::begin(machinery), std::end(machinery),
                     [&](const char* m) { return name.starts_with(m); });
}

}  // namespace

bool backtraces_wanted() { return wanted().load(std::memory_order_relaxed); }
void want_backtraces(bool w) { wanted().store(w, std::memory_order_relaxed); }

std::string described(std::span<void* const> addresses) {
  std::ostringstream text;
  std::vector<std::pair<std::string, std::string>> files;  // with their offsets
  size_t number = 0;
  for (void* const address : addresses) {
    // − 1: the address is the one that the call returns to.
    const os::CodePlace code = os::place_of(static_cast<const char*>(address) - 1);
    if (code.file.empty() || (number == 0 && is_machinery(code.function))) continue;
    std::ostringstream offset;
    offset << "0x" << std::hex << code.offset;
    text << "\n  #" << number << ' ' << code.file << '+' << offset.str();
    if (!code.function.empty()) text << " (" << code.function << ')';
    auto file = std::find_if(files.begin(), files.end(),
                             [&](const auto& f) { return f.first == code.file; });
    if (file == files.end()) file = files.insert(file, {code.file, ""});
    file->second += ' ' + offset.str();
    if (++number == kMostFrames) break;
  }
  for (const auto& [file, offsets] : files)
    text << "\n  addr2line -Cfie '" << file << '\'' << offsets;
  return text.str();
}

std::string backtrace_from(const void* return_address) {
  std::array<void*, kMostFrames + kOwnFrames> frames;
  const std::span all(frames.data(), os::call_stack(frames.data(), frames.size()));
  const auto first = std::find(all.begin(), all.end(), return_address);
  const auto skipped = first == all.end() ? 0 : static_cast<size_t>(first - all.begin());
  return kBacktrace + described(all.subspan(skipped));
}

}  // namespace halftape::detail
