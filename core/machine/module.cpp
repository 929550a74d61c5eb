#include "halftape/core/machine/module.h"

#include <filesystem>
#include <system_error>
#include <vector>

#include "halftape/core/machine/os.h"

namespace halftape::detail {
namespace {

/// An address in the program, or in libhalftape.so.
const void* here() { return reinterpret_cast<void*>(&here); }

/// Where a part may lie, the likeliest place first. Only folders that are as hard to write to as
/// this code itself: neither the current folder nor a search path of the system is among them.
/// * The folder of the program, or of libhalftape.so.
/// * PREFIX/lib for a program in PREFIX/bin, so that an installation may be moved as a whole.
/// * The folders that the program's linker wrote into it, such as that of a build.
std::vector<std::filesystem::path> places_of(const std::filesystem::path& code,
                                             const std::string& library) {
  const std::filesystem::path beside = code.parent_path();
  std::vector<std::filesystem::path> all{beside / library};
  if (beside.filename() == "bin")
    all.push_back(beside.parent_path() / HALFTAPE_LIB_FOLDER / library);
  for (const std::filesystem::path& folder : os::run_path_of(here()))
    all.push_back(folder / library);
  return all;
}

/// The file of the part; empty, with the reason, if there is none.
std::string find_module(const Module& module, std::string& why_not) {
  const std::string library = "libhalftape_" + module.name + ".so";
  std::string variable = "HALFTAPE_" + module.name + "_LIBRARY";
  for (char& c : variable)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  if (const char* said = os::secure_environment(variable.c_str()); said && *said) {
    std::error_code unreadable;
    const std::filesystem::path file = std::filesystem::absolute(said, unreadable);
    if (std::filesystem::is_regular_file(file, unreadable)) return file.string();
    why_not = variable + ": there is no file " + said;
    return "";
  }
  if (!module.needs.empty() && !os::load_library(module.needs, why_not)) {
    why_not = module.without;
    return "";
  }
  // A place may belong to somebody else: the folder beside a program in /tmp, or that of a build
  // that was deleted and made again by another user. So the file must belong to the owner of this
  // code, who is trusted already, or to root. Where that owner is unknown no place is safe.
  const std::filesystem::path code = os::place_of(here()).file;
  if (code.is_absolute()) {
    std::error_code unreadable;
    std::filesystem::path refused;
    for (const std::filesystem::path& file : places_of(code, library)) {
      if (os::is_as_safe_as(file, code)) return file.string();
      if (refused.empty() && exists(symlink_status(file, unreadable))) refused = file;
    }
    if (!refused.empty()) {
      why_not = module.what + " is not loaded from " + refused.string() +
                ": it must be a file of root or of the owner of " + code.string() +
                ", that neither everybody nor another group may write; if you trust it, " +
                variable + " names it";
      return "";
    }
  }
  why_not = module.what + " is not installed: " + library +
            " lies neither beside the program nor in a folder of its run path; if it lies "
            "elsewhere, " +
            variable + " names it";
  return "";
}

}  // namespace

void* load_module(const Module& module, std::string& why_not) {
  if (!*HALFTAPE_LIB_FOLDER) {
    why_not = module.what + " is for Linux alone";
    return nullptr;
  }
  const std::string file = find_module(module, why_not);
  void* const library = file.empty() ? nullptr : os::load_library(file, why_not);
  if (!library) return nullptr;
  // What does not fit stays loaded: unloading the CUDA runtime, say, is not safe.
  const std::string prefix = "halftape_" + module.name;
  const auto version =
      reinterpret_cast<int (*)()>(os::symbol(library, (prefix + "_version").c_str()));
  void* const open = os::symbol(library, (prefix + "_open").c_str());
  if (version && open && version() == module.version) return open;
  why_not = file + " belongs to another version of halftape";
  return nullptr;
}

}  // namespace halftape::detail
