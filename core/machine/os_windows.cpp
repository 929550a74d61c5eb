// Windows 8 and later. Texts are UTF-8, as libstdc++'s std::filesystem::path::string() gives them.
#include "halftape/core/machine/os.h"
#if defined(_WIN32)
#ifndef NOMINMAX
#define NOMINMAX
#endif
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#include <windows.h>

#include <malloc.h>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <system_error>
#include <thread>
#include <utility>

namespace halftape::os {
namespace fs = std::filesystem;

namespace {

std::string utf8(const wchar_t* text) {
  const int n = WideCharToMultiByte(CP_UTF8, 0, text, -1, nullptr, 0, nullptr, nullptr);
  std::string bytes(static_cast<size_t>(std::max(n, 1)), '\0');
  WideCharToMultiByte(CP_UTF8, 0, text, -1, bytes.data(), n, nullptr, nullptr);
  bytes.pop_back();  // the zero at the end
  return bytes;
}

/// An error of Windows in std::generic_category.
int generic(DWORD error) {
  if (error == ERROR_SHARING_VIOLATION || error == ERROR_USER_MAPPED_FILE) return EACCES;
  if (error == ERROR_HANDLE_DISK_FULL) return ENOSPC;
  if (error == ERROR_FILE_TOO_LARGE) return EFBIG;
  if (error == ERROR_DIRECTORY) return ENOTDIR;
  const std::error_condition c =
      std::system_category().default_error_condition(static_cast<int>(error));
  return c.category() == std::generic_category() && c.value() != 0 ? c.value() : EIO;
}

/// The same of a file or folder that could not be opened or made.
int generic(DWORD error, const fs::path& path) {
  const bool unfound = error == ERROR_PATH_NOT_FOUND || error == ERROR_FILE_NOT_FOUND ||
                       error == ERROR_FILENAME_EXCED_RANGE || error == ERROR_INVALID_NAME;
  return unfound && path.native().size() >= MAX_PATH ? ENAMETOOLONG : generic(error);
}

/// Closes it at the end.
struct OpenFile {
  HANDLE file = INVALID_HANDLE_VALUE;
  OpenFile() = default;
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() { close(); }
  bool is_open() const { return file != INVALID_HANDLE_VALUE; }
  void close() {
    if (is_open()) CloseHandle(std::exchange(file, INVALID_HANDLE_VALUE));
  }
};

}  // namespace

size_t call_stack(void** addresses, size_t n) {
  return RtlCaptureStackBackTrace(0, static_cast<DWORD>(n), addresses, nullptr);
}

namespace {
/// Where the linker placed the file, which the loader overwrites in memory.
uint64_t linked_base(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  IMAGE_DOS_HEADER dos{};
  IMAGE_NT_HEADERS head{};
  in.read(reinterpret_cast<char*>(&dos), sizeof(dos));
  in.seekg(dos.e_lfanew);
  in.read(reinterpret_cast<char*>(&head), sizeof(head));
  return in ? head.OptionalHeader.ImageBase : 0;
}

/// The file of a module; its own program's for null.
fs::path file_of(HMODULE module) {
  std::wstring name(MAX_PATH, L'\0');
  for (;; name.resize(2 * name.size())) {
    const DWORD n = GetModuleFileNameW(module, name.data(), static_cast<DWORD>(name.size()));
    if (n < name.size() || name.size() > 65536) return name.substr(0, n);
  }
}
}  // namespace

CodePlace place_of(const void* address) {
  HMODULE module = nullptr;
  if (!GetModuleHandleExW(
          GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
          static_cast<LPCWSTR>(address), &module))
    return {};
  const fs::path file = file_of(module);
  const auto offset = reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(module);
  return {file.string(), static_cast<uintptr_t>(offset + linked_base(file)), ""};
}

std::vector<fs::path> run_path_of(const void*) { return {}; }

void* load_library(const std::string& path, std::string& why_not) {
  // Never from the current folder, nor from those of PATH.
  const bool bare = path.find_first_of("/\\") == std::string::npos;
  const DWORD from = bare ? LOAD_LIBRARY_SEARCH_SYSTEM32
                          : LOAD_LIBRARY_SEARCH_SYSTEM32 | LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR;
  const fs::path file = bare ? fs::path(path) : fs::absolute(path).make_preferred();
  void* const library = reinterpret_cast<void*>(LoadLibraryExW(file.c_str(), nullptr, from));
  if (!library)
    why_not = path + ": " + std::system_category().message(static_cast<int>(GetLastError()));
  return library;
}

void* symbol(void* library, const char* name) {
  return reinterpret_cast<void*>(GetProcAddress(static_cast<HMODULE>(library), name));
}

bool is_as_safe_as(const fs::path&, const fs::path&) { return false; }

const char* secure_environment(const char* name) { return std::getenv(name); }

int processors() { return static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); }
bool may_use_amx() { return false; }

void* aligned_alloc(size_t alignment, size_t size) { return _aligned_malloc(size, alignment); }
void aligned_free(void* block) { _aligned_free(block); }
void trim_heap() noexcept {}

void after_fork_in_child(void (*)()) {}

#if defined(__MINGW32__) && !defined(__clang__)
// Of a thread that ends, GCC for Windows frees the memory of its variables before their destructors
// run, unless a destructor was registered before any thread's variable was used.
extern "C" int __cxa_thread_atexit(void (*)(void*), void*, void*);
namespace {
[[gnu::constructor(101)]] void register_first() {
  __cxa_thread_atexit([](void*) {}, nullptr, nullptr);
}
}  // namespace
#endif

std::string host_name() {
  wchar_t host[256] = {};
  DWORD n = 256;
  return GetComputerNameExW(ComputerNamePhysicalDnsHostname, host, &n) ? utf8(host) : "localhost";
}

NoPipeSignal::NoPipeSignal() = default;
NoPipeSignal::~NoPipeSignal() { (void)ours_; }
int64_t process_id() { return GetCurrentProcessId(); }

std::string output_of(const std::string&) { return {}; }

namespace {
/// False if standard output is no console.
bool console_mode(HANDLE& out, DWORD& mode) {
  out = GetStdHandle(STD_OUTPUT_HANDLE);
  return GetConsoleMode(out, &mode) != 0;
}
}  // namespace

void open_standard_files() {}
bool stdout_is_terminal() {
  HANDLE out;
  DWORD mode;
  return console_mode(out, mode);
}

bool terminal_takes_escapes() {
  HANDLE out;
  DWORD mode;
  return console_mode(out, mode) &&
         SetConsoleMode(out, mode | ENABLE_PROCESSED_OUTPUT | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
}

int terminal_width() {
  CONSOLE_SCREEN_BUFFER_INFO info;
  return GetConsoleScreenBufferInfo(GetStdHandle(STD_OUTPUT_HANDLE), &info)
             ? info.srWindow.Right - info.srWindow.Left + 1
             : 0;
}

// NTFS keeps the order of changes: a folder is on the disk before a file in it that was flushed.
void make_folders(const fs::path& folder) {
  std::error_code ignored;
  if (folder.empty() || fs::is_directory(folder, ignored)) return;
  if (folder.has_relative_path()) make_folders(folder.parent_path());
  if (CreateDirectoryW(folder.c_str(), nullptr)) return;
  const DWORD error = GetLastError();
  if (error != ERROR_ALREADY_EXISTS)
    throw FileFailure{"creating the folder", generic(error, folder)};
}

std::vector<std::string> names_in(const fs::path& folder, int& error) {
  std::vector<std::string> names;
  WIN32_FIND_DATAW entry;
  const HANDLE search = FindFirstFileW((folder.empty() ? L"*" : folder / L"*").c_str(), &entry);
  const DWORD failed = search != INVALID_HANDLE_VALUE ? DWORD{ERROR_SUCCESS} : GetLastError();
  error = 0;
  if (failed == ERROR_FILE_NOT_FOUND) return names;  // the root of an empty drive
  if (failed != ERROR_SUCCESS) {
    std::error_code ignored;
    error = fs::is_regular_file(folder, ignored) ? ENOTDIR : generic(failed, folder);
    return names;
  }
  const std::unique_ptr<void, BOOL(WINAPI*)(HANDLE)> open(search, &FindClose);
  do {
    const std::string name = utf8(entry.cFileName);
    if (name != "." && name != "..") names.push_back(name);
  } while (FindNextFileW(search, &entry));
  if (GetLastError() != ERROR_NO_MORE_FILES) error = generic(GetLastError());
  return names;
}

int write_new_file(const fs::path& path, std::string_view bytes) {
  OpenFile made;
  made.file = CreateFileW(path.c_str(), GENERIC_WRITE | DELETE, 0, nullptr, CREATE_NEW,
                          FILE_ATTRIBUTE_NORMAL, nullptr);
  if (!made.is_open()) return generic(GetLastError(), path);
  DWORD done = 0;
  if (WriteFile(made.file, bytes.data(), static_cast<DWORD>(bytes.size()), &done, nullptr) &&
      done == bytes.size())
    return 0;
  const int error = generic(GetLastError());
  FILE_DISPOSITION_INFO removed{TRUE};
  SetFileInformationByHandle(made.file, FileDispositionInfo, &removed, sizeof(removed));
  return error;
}

PathLock lock_path(const fs::path& path, int& error) {
  const DWORD attributes = GetFileAttributesW(path.c_str());
  struct Held : OpenFile {
    int number = 0;
  };
  const auto held = std::make_shared<Held>();
  bool locked = false;
  if (attributes != INVALID_FILE_ATTRIBUTES && attributes & FILE_ATTRIBUTE_DIRECTORY) {
    // A folder itself can be locked only against those who list it, too. This file goes with its
    // holder, even with a killed one.
    held->file =
        CreateFileW((path / L".lock").c_str(), GENERIC_WRITE | DELETE, 0, nullptr, OPEN_ALWAYS,
                    FILE_ATTRIBUTE_HIDDEN | FILE_FLAG_DELETE_ON_CLOSE, nullptr);
    locked = held->is_open();
  } else {
    held->file = CreateFileW(path.c_str(), GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE,
                             nullptr, OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, nullptr);
    // A byte that no file has: others may read and write those that it has.
    OVERLAPPED far_away{};
    far_away.Offset = 0xfffffffe;
    far_away.OffsetHigh = 0x7fffffff;
    locked = held->is_open() &&
             LockFileEx(held->file, LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0,
                        &far_away);
  }
  const DWORD failed = locked ? DWORD{ERROR_SUCCESS} : GetLastError();
  const bool another = failed == ERROR_LOCK_VIOLATION || failed == ERROR_SHARING_VIOLATION ||
                       failed == ERROR_IO_PENDING;
  error = locked ? 0 : another ? EAGAIN : generic(failed, path);
  return locked ? PathLock(held, &held->number) : nullptr;
}

bool locks(const PathLock&, const fs::path&) { return true; }

struct PartialFile::Open : OpenFile {};

PartialFile::PartialFile(const fs::path& path)
    : path_(path), partial_(path), open_(std::make_unique<Open>()) {
  partial_ += ".partial";
  HANDLE& file = open_->file;
  // Others may read it, such as virus scanners; a second writer may not open it. Whoever may write
  // to the folder may have put a link there: it is not followed.
  file =
      CreateFileW(partial_.c_str(), GENERIC_READ | GENERIC_WRITE | DELETE, FILE_SHARE_READ, nullptr,
                  OPEN_ALWAYS, FILE_ATTRIBUTE_NORMAL | FILE_FLAG_OPEN_REPARSE_POINT, nullptr);
  if (!open_->is_open()) {
    const DWORD error = GetLastError();
    if (error == ERROR_SHARING_VIOLATION)
      throw FileFailure{"locking, as another save of it is under way,", EAGAIN};
    throw FileFailure{"creating the file beside it, with .partial at its end,",
                      generic(error, partial_)};
  }
  BY_HANDLE_FILE_INFORMATION mine{};
  if (GetFileType(file) != FILE_TYPE_DISK || !GetFileInformationByHandle(file, &mine) ||
      mine.dwFileAttributes & FILE_ATTRIBUTE_REPARSE_POINT || mine.nNumberOfLinks > 1) {
    open_->close();
    throw FileFailure{"taking the name with .partial at its end, which a link or device has,",
                      EEXIST};
  }
  FILE_END_OF_FILE_INFO empty{};
  if (!SetFileInformationByHandle(file, FileEndOfFileInfo, &empty, sizeof(empty)))
    throw FileFailure{"emptying the file beside it", generic(GetLastError())};
}

PartialFile::~PartialFile() {
  if (!open_->is_open()) return;
  FILE_DISPOSITION_INFO removed{TRUE};
  SetFileInformationByHandle(open_->file, FileDispositionInfo, &removed, sizeof(removed));
}

void PartialFile::write_at(uint64_t position, const void* bytes, size_t n) {
  const char* from = static_cast<const char*>(bytes);
  while (n > 0) {
    OVERLAPPED at{};
    at.Offset = static_cast<DWORD>(position);
    at.OffsetHigh = static_cast<DWORD>(position >> 32);
    DWORD done = 0;
    const auto most = static_cast<DWORD>(std::min(n, size_t{1} << 30));
    if (!WriteFile(open_->file, from, most, &done, &at) || done == 0)
      throw FileFailure{"writing", generic(GetLastError())};
    from += done;
    n -= done;
    position += done;
  }
}

namespace {
/// Gives an open file the name of another, which it replaces, in one step. 0, or Windows' error.
DWORD rename_over(HANDLE file, const fs::path& path) {
  const std::wstring& name = path.native();
  const size_t bytes = name.size() * sizeof(wchar_t), size = sizeof(FILE_RENAME_INFO) + bytes;
  const std::unique_ptr<char[]> memory(new char[size]());
  auto* const info = reinterpret_cast<FILE_RENAME_INFO*>(memory.get());
  info->FileNameLength = static_cast<DWORD>(bytes);
  std::memcpy(info->FileName, name.data(), bytes);
  // Windows 10: a reader that allows it keeps the former file.
  constexpr DWORD kReplace = 1, kPosix = 2;
  constexpr auto kRenameEx = static_cast<FILE_INFO_BY_HANDLE_CLASS>(22);
  const DWORD flags = kReplace | kPosix;
  std::memcpy(memory.get(), &flags, sizeof(flags));
  if (SetFileInformationByHandle(file, kRenameEx, info, static_cast<DWORD>(size))) return 0;
  std::memset(memory.get(), 0, sizeof(flags));
  info->ReplaceIfExists = TRUE;
  const bool done =
      SetFileInformationByHandle(file, FileRenameInfo, info, static_cast<DWORD>(size));
  return done ? 0 : GetLastError();
}
}  // namespace

void PartialFile::commit() {
  if (!FlushFileBuffers(open_->file))
    throw FileFailure{"flushing to the disk", generic(GetLastError())};
  // Virus scanners and indexers hold a file open for a moment: a second, then it is somebody else.
  for (int tries = 50; const DWORD failed = rename_over(open_->file, path_); --tries) {
    const int error = generic(failed);
    if (error != EACCES) throw FileFailure{"renaming", error};
    if (tries == 0)
      throw FileFailure{"replacing it, which is read-only or open in a program,", error};
    Sleep(20);
  }
  const DWORD error = FlushFileBuffers(open_->file) ? DWORD{ERROR_SUCCESS} : GetLastError();
  open_->close();
  if (error != ERROR_SUCCESS) throw FileFailure{"flushing its name", generic(error), true};
}

}  // namespace halftape::os
#endif
