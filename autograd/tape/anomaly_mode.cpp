#include "halftape/autograd/tape/anomaly_mode.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <mutex>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "halftape/core/contract/backend.h"
#include "halftape/core/formula/number_class.h"
#include "halftape/core/machine/backtrace.h"
#include "halftape/core/machine/os.h"

namespace halftape::autograd {
namespace {

/// A function of a call stack.
struct Frame {
  std::string function;  // with its parameters; "??" if unknown
  std::string place;     // "file:line", or "binary+0x…" where there are no line numbers

  std::string text() const {
    if (function == "??") return place;
    const bool line = place.find("+0x") == std::string::npos;
    return place + " (" + function + (line ? ")" : "); compile with -g for the line");
  }
  /// True if it is neither this library's, nor the standard library's, nor libc's, by its name.
  bool is_users() const {
    std::string name = function.substr(0, function.find_first_of("<("));
    name = name.substr(name.rfind(' ') + 1);  // a template's return type comes first
    constexpr const char* others[] = {"halftape::", "std::", "??", "_"};
    return std::none_of(std::begin(others), std::end(others),
                        [&](const char* other) { return name.starts_with(other); });
  }
  /// True if its line is in a header of this library or of the standard library. Names of inlined
  /// functions have no namespace where debug information has lines alone.
  bool is_in_header() const {
    return place.find("/include/halftape/") != std::string::npos ||
           place.find("/include/c++/") != std::string::npos;
  }
};

/// Whether the symbol "a::b::name<…>(…)" is that of the function `name`, whose arguments, of
/// templates, too, may be written differently.
bool is_called(const std::string& symbol, const std::string& name) {
  const std::string plain = "::" + name.substr(0, name.find_first_of("<("));
  const size_t at = symbol.find(plain), end = at + plain.size();
  constexpr std::string_view next = "<([";  // the last before an ABI tag
  return at != std::string::npos &&
         (end == symbol.size() || next.find(symbol[end]) != std::string_view::npos);
}

/// Tells the functions at places in binaries by binutils' addr2line, which is asked once for each.
class Symbols {
 public:
  /// For each place its functions, inlined ones first.
  std::vector<std::vector<Frame>> at(const std::vector<os::CodePlace>& places) {
    const std::lock_guard lock(mutex_);
    std::map<std::string, std::vector<uintptr_t>> unknown;
    for (const os::CodePlace& place : places) {
      if (std::vector<Frame>& frames = known_[place.file][place.offset]; frames.empty()) {
        std::ostringstream code;
        code << place.file << "+0x" << std::hex << place.offset;
        frames.push_back({"??", code.str()});
        unknown[place.file].push_back(place.offset);
      }
    }
    for (const auto& [binary, offsets] : unknown) ask(binary, offsets);
    std::vector<std::vector<Frame>> all;
    all.reserve(places.size());
    for (const os::CodePlace& place : places) all.push_back(known_[place.file][place.offset]);
    return all;
  }

 private:
  void ask(const std::string& binary, const std::vector<uintptr_t>& offsets) {
    if (binary.find('\'') != std::string::npos) return;  // the command goes through a shell
    std::ostringstream command;
    command << "addr2line -Caife '" << binary << '\'' << std::hex;
    for (const uintptr_t offset : offsets) command << " 0x" << offset;
    command << " 2>/dev/null";
    std::istringstream answer(os::output_of(command.str()));
    std::string function, line;
    std::getline(answer, function);
    for (const uintptr_t offset : offsets) {  // "0x…", then two lines for each function
      std::vector<Frame>& frames = known_[binary][offset];
      const std::string code = frames[0].place;
      std::vector<Frame> found;
      while (std::getline(answer, function) && !function.starts_with("0x") &&
             std::getline(answer, line))
        found.push_back({function, line.starts_with("??")
                                       ? code
                                       : line.substr(0, line.rfind(" (discriminator "))});
      if (found.empty()) continue;
      // Where debug information has lines alone, the symbol in which the others are inlined stands
      // first, and last is its name without namespaces.
      if (is_called(found.front().function, found.back().function))
        std::swap(found.front().function, found.back().function);
      frames = std::move(found);
    }
  }

  std::mutex mutex_;
  std::map<std::string, std::map<uintptr_t, std::vector<Frame>>> known_;
};

Symbols& symbols() {
  static Symbols& all = *new Symbols;  // for errors of static destructors, too
  return all;
}

bool is_system_library(const std::string& binary) {
  const std::string name = std::filesystem::path(binary).filename().string();
  return name.starts_with("libc.") || name.starts_with("libc-") || name.starts_with("libpthread") ||
         name.starts_with("libstdc++") || name.starts_with("libc++");
}

constexpr std::string_view kNoName =
    "a place without a name: without symbols or addr2line there is none";

/// Where no user's function has a name, the first place outside the binary of the library; "" for
/// an empty origin.
std::string caller(const std::string& origin) {
  if (origin.empty()) return "";
  std::vector<os::CodePlace> calls;
  for (size_t i = 0; i + sizeof(void*) <= origin.size(); i += sizeof(void*)) {
    uintptr_t address;
    origin.copy(reinterpret_cast<char*>(&address), sizeof address, i);
    // − 1: the address is the one that the call returns to.
    os::CodePlace code = os::place_of(reinterpret_cast<void*>(address - 1));
    if (!code.file.empty() && !is_system_library(code.file)) calls.push_back(std::move(code));
  }
  std::string outside;
  bool below = false;  // a function of the library has passed
  const std::vector<std::vector<Frame>> frames_of_calls = symbols().at(calls);
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::vector<Frame>& frames = frames_of_calls[i];
    if (outside.empty() && calls[i].file != calls[0].file) outside = frames.front().text();
    // What was inlined into the library's is the library's. What comes before it is backtrace().
    const Frame& outermost = frames.back();
    below = below || !outermost.is_users();
    if (!below || !outermost.is_users()) continue;
    for (const Frame& frame : frames)
      if (&frame == &outermost || (frame.is_users() && !frame.is_in_header())) return frame.text();
  }
  return outside.empty() ? std::string(kNoName) : outside;
}

/// For the end of an error's text.
std::string failing_call() {
  try {
    if (const std::string where = caller(call_site()); where != kNoName)
      return halftape::detail::kCall + where;
  } catch (const std::exception&) {  // NOLINT: the error counts, without a place if need be
  }
  return "";
}

}  // namespace

void AnomalyMode::set_enabled(bool enabled, bool check_nan, bool check_inf) {
  const Mode now = !enabled    ? Mode::Off
                   : check_inf ? Mode::Inf
                   : check_nan ? Mode::NaN
                               : Mode::Calls;
  const Mode before = mode.exchange(now);
  detail::tape_watchers += static_cast<int>(enabled) - static_cast<int>(before != Mode::Off);
  halftape::detail::call_at_work = enabled ? &failing_call : nullptr;
}

std::string call_site() {
  std::array<void*, 36> frames;
  const size_t n = os::call_stack(frames.data(), frames.size());
  return {reinterpret_cast<const char*>(frames.data()), n * sizeof(void*)};
}

std::string described_call(const std::string& call_site) { return caller(call_site); }

namespace {
/// With HALFTAPE_BACKTRACE=1, the functions of the forward call, from what call_site() returned.
std::string forward_call(const std::string& origin) {
  if (!detail::backtraces_wanted() || origin.empty()) return "";
  std::vector<void*> addresses(origin.size() / sizeof(void*));
  origin.copy(reinterpret_cast<char*>(addresses.data()), origin.size());
  return "\nforward call in:" + detail::described(addresses);
}
}  // namespace

std::string where_called(const Node& node) {
  std::string text = node.place().empty() ? "" : " in " + std::string(node.place());
  if (const std::string where = caller(node.origin()); !where.empty())
    text += "; it was called at " + where + forward_call(node.origin());
  return text;
}

void refuse_nonfinite(const Node& node, const Grads& grads) {
  for (size_t i = 0; i < grads.size(); ++i) {
    const Tensor& g = grads[i];
    if (!g.defined()) continue;
    const Array counts = full({kNumberClasses}, 0, kInt64, g.device());
    std::array<int64_t, kNumberClasses> classes;
    backend(g.device()).count_numbers(CountBy::Class, counts, g.array());
    backend(g.device()).read(classes.data(), counts);
    const bool nan = classes[static_cast<size_t>(NumberClass::NaN)] > 0,
               inf = classes[static_cast<size_t>(NumberClass::Infinite)] > 0;
    if (!nan && !(inf && AnomalyMode::should_check_inf())) continue;
    const std::string where = caller(node.origin());
    HALFTAPE_CHECK(false, "backward: `", node.name(), "` gave ", nan ? "a NaN" : "an infinity",
                   " in the gradient of its input ", i, " (", g.dtype(), " ", g.sizes(), ")",
                   node.place().empty() ? "" : " in " + std::string(node.place()),
                   "; it was called ", where.empty() ? "while anomaly mode was off" : "at " + where,
                   forward_call(node.origin()));
  }
}

}  // namespace halftape::autograd
