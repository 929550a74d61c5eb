// Systems that are neither POSIX nor Windows: what standard C++ can do.
#include "halftape/core/machine/os.h"
#if !defined(__unix__) && !defined(__APPLE__) && !defined(_WIN32)
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <system_error>

namespace halftape::os {
namespace fs = std::filesystem;

size_t call_stack(void**, size_t) { return 0; }
CodePlace place_of(const void*) { return {}; }
std::vector<fs::path> run_path_of(const void*) { return {}; }
void* load_library(const std::string&, std::string& why_not) {
  why_not = "this system has no dlopen()";
  return nullptr;
}
void* symbol(void*, const char*) { return nullptr; }
bool is_as_safe_as(const fs::path&, const fs::path&) { return false; }
const char* secure_environment(const char* name) { return std::getenv(name); }
int processors() { return 1; }
bool may_use_amx() { return false; }
void after_fork_in_child(void (*)()) {}
void* aligned_alloc(size_t alignment, size_t size) { return std::aligned_alloc(alignment, size); }
void aligned_free(void* block) { std::free(block); }
void trim_heap() noexcept {}
std::string host_name() { return "localhost"; }
NoPipeSignal::NoPipeSignal() = default;
NoPipeSignal::~NoPipeSignal() { (void)ours_; }
int64_t process_id() { return 0; }
std::string output_of(const std::string&) { return {}; }
void open_standard_files() {}
bool stdout_is_terminal() { return false; }
bool terminal_takes_escapes() { return false; }
int terminal_width() { return 0; }
void make_folders(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw FileFailure{"creating the folder", error.value()};
}
std::vector<std::string> names_in(const fs::path& folder, int& error) {
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed))
    names.push_back(it->path().filename().string());
  error = failed.default_error_condition().value();
  return names;
}
int write_new_file(const fs::path& path, std::string_view bytes) {
  std::FILE* const file = std::fopen(path.string().c_str(), "wbx");
  if (!file) return errno;
  int error = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size() ? 0 : errno;
  if (std::fclose(file) != 0 && error == 0) error = errno;
  if (error != 0) std::remove(path.string().c_str());
  return error;
}
PathLock lock_path(const fs::path&, int& error) {
  error = 0;
  return nullptr;
}

bool locks(const PathLock&, const fs::path&) { return true; }

struct PartialFile::Open {
  std::ofstream stream;
};

PartialFile::PartialFile(const fs::path& path)
    : path_(path), partial_(path), open_(std::make_unique<Open>()) {
  partial_ += ".partial";
  open_->stream.open(partial_, std::ios::binary | std::ios::trunc);
  if (!open_->stream)
    throw FileFailure{"creating the file beside it, with .partial at its end,", errno};
}

PartialFile::~PartialFile() {
  if (!open_->stream.is_open()) return;
  open_->stream.close();
  std::error_code ignored;
  fs::remove(partial_, ignored);
}

void PartialFile::write_at(uint64_t position, const void* bytes, size_t n) {
  open_->stream.seekp(static_cast<std::streamoff>(position));
  open_->stream.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(n));
  if (!open_->stream) throw FileFailure{"writing", errno};
}

void PartialFile::commit() {
  open_->stream.close();
  if (!open_->stream) throw FileFailure{"writing", errno};
  std::error_code error;
  fs::rename(partial_, path_, error);
  if (error) throw FileFailure{"renaming", error.value()};
}

}  // namespace halftape::os
#endif
