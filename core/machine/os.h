// What standard C++ cannot ask of the operating system. Only os_*.cpp know which system it is:
// POSIX, Windows, or an unknown one; each function says what it returns where there is no answer.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace halftape::os {

// --- Code

/// Writes the addresses of the running functions, the newest first, at most n, and returns their
/// number; 0 on an unknown system.
size_t call_stack(void** addresses, size_t n);
/// The file that holds a piece of code, and the offset in it. For code of the main program it is
/// the file that runs, whatever name started it. An empty file on an unknown system.
struct CodePlace {
  std::string file;
  uintptr_t offset = 0;  // the address in the file's symbols, as addr2line takes it
  std::string function;  // with its parameters; empty where the file does not export it
};
CodePlace place_of(const void* address);
/// Loads a shared library for the rest of the process; the system searches for a bare name, Windows
/// in its own folder alone. Null, with the reason, if it does not load, and on an unknown system.
void* load_library(const std::string& path, std::string& why_not);
/// The address of a name in the library, or null.
void* symbol(void* library, const char* name);
/// The folders that the linker wrote into the file that holds a piece of code (DT_RUNPATH, or
/// DT_RPATH), for the libraries that it needs. Only absolute ones, $ORIGIN being that of the file;
/// empty on systems without link maps.
std::vector<std::filesystem::path> run_path_of(const void* address);
/// True if `file` is a regular file of root or of the owner of `program`, and not everybody may
/// write it. Always false on Windows and on an unknown system.
bool is_as_safe_as(const std::filesystem::path& file, const std::filesystem::path& program);

// --- Processes

/// Calls `f` in every child that this process forks, before anything else runs there. Does nothing
/// on systems without fork().
void after_fork_in_child(void (*f)());
/// The value of an environment variable, or null. Null, too, in a program that has more rights than
/// its caller, on systems that can tell.
const char* secure_environment(const char* name);
/// Whether an environment variable is set, and neither empty nor "0".
inline bool is_asked_for(const char* variable) {
  const char* const said = std::getenv(variable);
  return said && *said && std::string_view(said) != "0";
}
/// On how many processors this process may run: those that taskset, a container or a launcher left
/// it, on Linux; all of the machine elsewhere. At least 1.
int processors();
/// Whether the system lets this process, from now on, use the registers of AMX, for which the
/// frames of its signals grow by 8 KiB. False on other systems than Linux on x86-64.
bool may_use_amx();
/// While it lives, a write of this thread to a connection or pipe that nobody reads any longer is
/// an error instead of the end of the program, and so it is in threads that this one starts
/// meanwhile. Does nothing on systems without SIGPIPE.
class NoPipeSignal {
 public:
  NoPipeSignal();
  ~NoPipeSignal();
  NoPipeSignal(const NoPipeSignal&) = delete;
  NoPipeSignal& operator=(const NoPipeSignal&) = delete;

 private:
  bool ours_ = false;  // this one blocked the signal
};
/// "localhost" and 0 on an unknown system.
std::string host_name();
int64_t process_id();
/// The standard output of a command of POSIX's shell; empty on systems without it.
std::string output_of(const std::string& command);
/// Memory for aligned_free(), null if there is none: Windows lacks std::aligned_alloc().
void* aligned_alloc(size_t alignment, size_t size);
void aligned_free(void* block);
/// Gives the system the free pages that the C library has kept; does nothing but with glibc.
void trim_heap() noexcept;

// --- The terminal behind standard output

/// Opens the null device for each of the three standard files that is closed, as the next file that
/// is opened would take its number, and with it what is printed. Does nothing but on POSIX.
void open_standard_files();
bool stdout_is_terminal();
/// True if it takes ANSI escape codes: where TERM is set and not "dumb"; on Windows they are turned
/// on. False on an unknown system.
bool terminal_takes_escapes();
/// In columns; 0 if unknown.
int terminal_width();

// --- Files

/// The operation that failed, and its error in std::generic_category.
struct FileFailure {
  const char* doing;
  int error;
  bool renamed = false;  // the new file already has its final name
};

/// False where a file that is open, even in this process, is not replaced.
#if defined(_WIN32)
inline constexpr bool kReplacesOpenFiles = false;
#else
inline constexpr bool kReplacesOpenFiles = true;
#endif

/// A file that is written as path.partial and renamed to `path` once its bytes are on the disk. All
/// members throw FileFailure. A second writer is refused as long as the first one's object lives.
/// On Windows a file that a reader has open is not replaced, unless it was opened to share
/// deletion. On an unknown system nothing is flushed, and a second writer is not noticed.
class PartialFile {
 public:
  explicit PartialFile(const std::filesystem::path& path);
  /// Removes the partial file, unless commit() was called.
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

/// Creates a folder with its parents, and flushes each folder that got a new entry. Throws
/// FileFailure.
void make_folders(const std::filesystem::path& folder);

/// The names in a folder as far as they could be read, and the error in std::generic_category, or
/// 0. A std::filesystem::directory_iterator of libstdc++ ends the process when memory runs out.
std::vector<std::string> names_in(const std::filesystem::path& folder, int& error);

/// Writes a file under a name that nothing has. 0, or an error in std::generic_category, such as
/// EEXIST, that leaves no file behind.
int write_new_file(const std::filesystem::path& path, std::string_view bytes);

/// A lock of a file or folder, until the last copy goes or the process ends. On Windows a locked
/// folder holds a hidden file, .lock, meanwhile.
using PathLock = std::shared_ptr<const int>;
/// Null, with an error, if the lock cannot be had: EAGAIN if another holder has it. Null with 0 on
/// an unknown system.
PathLock lock_path(const std::filesystem::path& path, int& error);
/// Whether the lock is of the file or folder that has this path now: one that is renamed keeps its
/// lock, and another may take its place. Always true on Windows, which renames no locked folder.
bool locks(const PathLock& lock, const std::filesystem::path& path);

}  // namespace halftape::os
