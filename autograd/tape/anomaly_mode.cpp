#include "halftape/autograd/tape/anomaly_mode.h"

#include <array>
#include <sstream>
#include <vector>

#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/core/machine/os.h"

namespace halftape::autograd {

namespace {

/// "file:line (function)" for an offset in a binary, inlined functions first, by binutils'
/// addr2line. Without addr2line or debug information: the offset.
std::vector<std::string> places(const std::string& binary, uintptr_t offset) {
  std::ostringstream command, plain;
  plain << binary << "+0x" << std::hex << offset;
  // The command goes through a shell: no path with a quote in it.
  if (binary.find('\'') != std::string::npos) return {plain.str()};
  command << "addr2line -Cife '" << binary << "' 0x" << std::hex << offset << " 2>/dev/null";
  std::istringstream answer(os::output_of(command.str()));
  std::vector<std::string> all;
  for (std::string function, where; std::getline(answer, function) && std::getline(answer, where);)
    if (where.compare(0, 2, "??") != 0)
      all.push_back(where.substr(0, where.find(' ')) + " (" + function + ")");
  if (all.empty()) all.push_back(plain.str());
  return all;
}

}  // namespace

std::string call_site() {
  std::array<void*, 24> frames;
  const size_t n = os::call_stack(frames.data(), frames.size());
  return {reinterpret_cast<const char*>(frames.data()), n * sizeof(void*)};
}

namespace {

/// True if "file:line (function)" names a function outside this library and the standard library.
bool is_users(const std::string& where) {
  const size_t open = where.find(" (");
  if (open == std::string::npos) return false;
  std::string name = where.substr(open + 2);
  name = name.substr(0, name.find_first_of("<("));  // a template's return type comes first
  name = name.substr(name.rfind(' ') + 1);
  return !name.starts_with("halftape::") && !name.starts_with("std::");
}

/// The first frame outside the library, from what call_site() returned.
std::string resolved(const std::string& origin) {
  std::string first;
  for (size_t i = 0; i + sizeof(void*) <= origin.size(); i += sizeof(void*)) {
    uintptr_t address;
    origin.copy(reinterpret_cast<char*>(&address), sizeof address, i);
    // − 1: the address is the one that the call returns to.
    const os::CodePlace code = os::place_of(reinterpret_cast<void*>(address - 1));
    if (code.file.empty()) continue;
    for (const std::string& here : places(code.file, code.offset)) {
      if (first.empty()) first = here;
      if (is_users(here)) return here;
    }
  }
  return first;
}

}  // namespace

void refuse_nan(const Node& node, const Grads& grads) {
  const NoGradGuard no_grad;
  for (size_t i = 0; i < grads.size(); ++i) {
    const Tensor& g = grads[i];
    if (!g.defined() || g.equal(g)) continue;  // NaN differs from itself
    const Node::Extras* extras = node.has_extras();
    const std::string where = extras ? resolved(extras->origin) : "";
    HALFTAPE_CHECK(false, "backward: `", node.name(), "` gave a NaN in the gradient of its input ",
                   i, " (", g.dtype(), " ", g.sizes(), "); it was called ",
                   where.empty() ? "while anomaly mode was off" : "at " + where);
  }
}

}  // namespace halftape::autograd
