// What standard C++ cannot ask of the operating system. Only os.cpp knows which one it is; where it
// knows none, each function says what it does.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace halftape::os {

// --- Code

/// Addresses of the running functions, the newest first, at most n: how many there are. 0 where
/// nobody knows.
size_t call_stack(void** addresses, size_t n);
/// Where code lies: in which file, and how far from its start. An empty file where nobody knows.
struct CodePlace {
  std::string file;
  uintptr_t offset = 0;
};
CodePlace place_of(const void* address);
/// A shared library, for the rest of the process; a bare name is looked for where the system looks.
/// Null, with the reason, where it does not load, and on systems without dlopen().
void* load_library(const std::string& path, std::string& why_not);
/// Null when the library has no such name.
void* symbol(void* library, const char* name);

// --- Processes

/// Calls `f` in every child that this process forks, before anything else runs there. Nothing where
/// processes do not fork.
void after_fork_in_child(void (*f)());
/// "localhost" and 0 where the operating system is not asked.
std::string host_name();
int64_t process_id();
/// What a command of the shell writes to its standard output; empty where there is none.
std::string output_of(const std::string& command);

// --- The terminal behind standard output

bool stdout_is_terminal();
/// In columns; 0 where nobody knows.
int terminal_width();

// --- Files

/// What was being done when it failed, and why: a number of std::generic_category.
struct FileFailure {
  const char* doing;
  int error;
  bool renamed = false;  // the new file stands under its name already
};

/// A file that is written beside `path`, as path.partial, and takes its name once its bytes are on
/// the disk. All throw FileFailure. One writer at a time: a second one's is refused while the first
/// one's lives. Without POSIX nothing is flushed, and two writers are not told from one.
class PartialFile {
 public:
  explicit PartialFile(const std::filesystem::path& path);
  /// Without commit(): removes what was written.
  ~PartialFile();
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;
  void write_at(uint64_t position, const void* bytes, size_t n);
  void commit();

 private:
  struct Open;
  std::filesystem::path path_, partial_;
  std::unique_ptr<Open> open_;
};

}  // namespace halftape::os
