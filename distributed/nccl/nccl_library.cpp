#include "halftape/distributed/nccl/nccl_library.h"

#include <filesystem>
#include <system_error>

#include "halftape/core/check.h"
#include "halftape/core/machine/os.h"

namespace halftape::distributed::nccl {
namespace {

constexpr const char* kVariable = "HALFTAPE_NCCL_LIBRARY";

/// 22809 is 2.28.9, and before 2.9 there was a digit less: 2804 is 2.8.4.
std::string version_text(int code) {
  const int major = code < 10000 ? 1000 : 10000;
  return std::to_string(code / major) + '.' + std::to_string(code % major / 100) + '.' +
         std::to_string(code % 100);
}

void* open_file(std::string& file) {
  std::string why_not;
  if (const char* said = os::secure_environment(kVariable)) {
    std::error_code unreadable;
    file = std::filesystem::absolute(said, unreadable).string();
    HALFTAPE_CHECK(std::filesystem::is_regular_file(file, unreadable), kVariable,
                   ": there is no file ", said);
    void* const library = os::load_library(file, why_not);
    HALFTAPE_CHECK(library, kVariable, ": ", file, " does not load: ", why_not);
    return library;
  }
  file = "libnccl.so.2";
  void* const library = os::load_library(file, why_not);
  HALFTAPE_CHECK(library, "NCCL is not installed: libnccl.so.2 was not found by the system (",
                 why_not, "); install NVIDIA's package libnccl2, or name the file by ", kVariable,
                 ", or use the backend \"gloo\"");
  return library;
}

template <class F>
void find(void* library, const std::string& file, const char* name, F*& function) {
  function = reinterpret_cast<F*>(os::symbol(library, name));
  HALFTAPE_CHECK(function, "NCCL: ", file, " has no ", name, "; Halftape needs NCCL ",
                 version_text(kLeastVersion), " or later: install it, or name its file by ",
                 kVariable);
}

}  // namespace

std::string Library::text_of(ncclResult_t result) const {
  std::string text = GetErrorString(result);
  if (const char* last = GetLastError(nullptr); last && *last) text += std::string(": ") + last;
  return text;
}

Library load() {
  Library all;
  void* const library = open_file(all.file);
  find(library, all.file, "ncclGetVersion", all.GetVersion);
  HALFTAPE_CHECK(all.GetVersion(&all.version) == ncclSuccess, "NCCL: ", all.file,
                 " does not tell its version");
  HALFTAPE_CHECK(all.version >= kLeastVersion, "NCCL: ", all.file, " is version ",
                 version_text(all.version), "; Halftape needs ", version_text(kLeastVersion),
                 " or later: install it, or name its file by ", kVariable);
  find(library, all.file, "ncclGetUniqueId", all.GetUniqueId);
  find(library, all.file, "ncclCommInitRankConfig", all.CommInitRankConfig);
  find(library, all.file, "ncclCommFinalize", all.CommFinalize);
  find(library, all.file, "ncclCommDestroy", all.CommDestroy);
  find(library, all.file, "ncclCommAbort", all.CommAbort);
  find(library, all.file, "ncclCommGetAsyncError", all.CommGetAsyncError);
  find(library, all.file, "ncclGetErrorString", all.GetErrorString);
  find(library, all.file, "ncclGetLastError", all.GetLastError);
  find(library, all.file, "ncclGroupStart", all.GroupStart);
  find(library, all.file, "ncclGroupEnd", all.GroupEnd);
  find(library, all.file, "ncclSend", all.Send);
  find(library, all.file, "ncclRecv", all.Recv);
  find(library, all.file, "ncclAllReduce", all.AllReduce);
  return all;
}

}  // namespace halftape::distributed::nccl
