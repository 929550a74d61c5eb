#include "halftape/tests/faults/system_calls.h"

#include "halftape/tests/faults/history.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string_view>

namespace {

using halftape::testing::Fault;

struct Failures {
  Fault fault;
  std::atomic<bool> armed{false};
  std::atomic<int64_t> calls{0};
  std::atomic<const char*> first{nullptr};
};
constinit Failures of_files, of_threads;

bool fails(Failures& f, const char* name) {
  if (!f.armed || f.fault.half) return false;
  const int64_t n = ++f.calls;
  if (n > f.fault.nth + 100'000) {
    std::fprintf(stderr, "%s is called again and again after a failure\n", name);
    std::abort();
  }
  if (f.fault.persists ? n < f.fault.nth : n != f.fault.nth) return false;
  if (!f.first) f.first = name;
  errno = f.fault.error;
  return true;
}

/// How many of n bytes a write takes; −1 if it fails.
ssize_t taken(const char* name, size_t n) {
  Failures& f = of_files;
  if (fails(f, name)) return -1;
  const int64_t call = f.armed && f.fault.half ? ++f.calls : 0;
  if (call == 0 || call < f.fault.nth || call > f.fault.nth + 1) return static_cast<ssize_t>(n);
  if (call == f.fault.nth) {
    f.first = name;
    return static_cast<ssize_t>(n < 2 ? n : n / 2);
  }
  errno = f.fault.error;
  return f.fault.error != 0 ? -1 : static_cast<ssize_t>(n);
}

mode_t mode_in(va_list arguments, int flags) {
  return flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
}

// --- What is done to files below a folder. Nothing fails meanwhile.

using halftape::testing::Change;

struct Recorder {
  std::string root;  // empty: none is at work
  std::vector<Change> changes;
  std::map<ino_t, int64_t> files;  // those that were created meanwhile
  int64_t next = 1;
} recorder;

bool recorded(const char* path) {
  return !recorder.root.empty() && std::string_view(path).starts_with(recorder.root);
}
bool exists(const char* path) {
  struct stat found;
  return ::lstat(path, &found) == 0;
}
void opened(const char* path, int file, bool existed, bool emptied) {
  struct stat now;
  if (file < 0 || !recorded(path) || ::fstat(file, &now) != 0 || !S_ISREG(now.st_mode)) return;
  if (!existed)
    recorder.changes.push_back({.kind = Change::Create,
                                .path = path,
                                .file = recorder.files[now.st_ino] = recorder.next++});
  else if (emptied)
    recorder.changes.push_back({.kind = Change::Resize, .file = recorder.files.at(now.st_ino)});
}
/// The file's number, and where a write without a position goes; 0 if it is not recorded.
int64_t number_of(int file, uint64_t& position) {
  struct stat now;
  if (recorder.root.empty() || ::fstat(file, &now) != 0) return 0;
  const auto found = recorder.files.find(now.st_ino);
  if (found == recorder.files.end()) return 0;
  const bool at_end = fcntl(file, F_GETFL) & O_APPEND;
  position = static_cast<uint64_t>(at_end ? now.st_size : lseek(file, 0, SEEK_CUR));
  return found->second;
}
void wrote(int64_t number, uint64_t position, const void* bytes, ssize_t n) {
  if (number == 0 || n <= 0) return;
  recorder.changes.push_back({.kind = Change::Write,
                              .file = number,
                              .position = position,
                              .bytes = {static_cast<const char*>(bytes), static_cast<size_t>(n)}});
}
int changed(int result, Change::Kind kind, const char* path, const char* to = "") {
  if (result == 0 && recorded(path))
    recorder.changes.push_back({.kind = kind, .path = path, .to = to});
  return result;
}
void resized(int64_t number, off_t size) {
  if (number != 0)
    recorder.changes.push_back(
        {.kind = Change::Resize, .file = number, .position = static_cast<uint64_t>(size)});
}
void flushed(int file) {
  struct stat now;
  if (recorder.root.empty() || ::fstat(file, &now) != 0) return;
  if (S_ISDIR(now.st_mode)) {
    const std::string link = "/proc/self/fd/" + std::to_string(file);
    char path[4096];
    const ssize_t n = ::readlink(link.c_str(), path, sizeof(path));
    if (n > 0)
      recorder.changes.push_back(
          {.kind = Change::FlushFolder, .path = {path, static_cast<size_t>(n)}});
  } else if (const auto found = recorder.files.find(now.st_ino); found != recorder.files.end()) {
    recorder.changes.push_back({.kind = Change::Flush, .file = found->second});
  }
}

}  // namespace

// The next definition of a function, in the C library.
#define NEXT(name) \
  static const auto next = reinterpret_cast<decltype(&::name)>(dlsym(RTLD_NEXT, #name))
#define FAILS(name, result) \
  NEXT(name);               \
  if (fails(of_files, #name)) return result

extern "C" {

int open(const char* path, int flags, ...) {
  FAILS(open, -1);
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_in(arguments, flags);
  va_end(arguments);
  const bool existed = !recorded(path) || exists(path);
  const int file = next(path, flags, mode);
  opened(path, file, existed, flags & O_TRUNC);
  return file;
}
int openat(int folder, const char* path, int flags, ...) {
  FAILS(openat, -1);
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_in(arguments, flags);
  va_end(arguments);
  return next(folder, path, flags, mode);
}
FILE* fopen(const char* path, const char* mode) {
  FAILS(fopen, nullptr);
  const bool existed = !recorded(path) || exists(path);
  FILE* const file = next(path, mode);
  opened(path, file ? fileno(file) : -1, existed, mode[0] == 'w');
  return file;
}
FILE* fopen64(const char* path, const char* mode) {
  FAILS(fopen64, nullptr);
  const bool existed = !recorded(path) || exists(path);
  FILE* const file = next(path, mode);
  opened(path, file ? fileno(file) : -1, existed, mode[0] == 'w');
  return file;
}
// What fails to close is closed all the same, as on Linux.
int fclose(FILE* file) {
  NEXT(fclose);
  const int result = next(file);
  return fails(of_files, "fclose") ? EOF : result;
}
int close(int file) {
  NEXT(close);
  const int result = next(file);
  return fails(of_files, "close") ? -1 : result;
}
int closedir(DIR* folder) {
  NEXT(closedir);
  const int result = next(folder);
  return fails(of_files, "closedir") ? -1 : result;
}

ssize_t read(int file, void* bytes, size_t n) {
  FAILS(read, -1);
  return next(file, bytes, n);
}
ssize_t write(int file, const void* bytes, size_t n) {
  NEXT(write);
  const ssize_t most = taken("write", n);
  if (most < 0) return -1;
  uint64_t position = 0;
  const int64_t number = number_of(file, position);
  const ssize_t done = next(file, bytes, static_cast<size_t>(most));
  wrote(number, position, bytes, done);
  return done;
}
ssize_t pwrite(int file, const void* bytes, size_t n, off_t position) {
  NEXT(pwrite);
  const ssize_t most = taken("pwrite", n);
  if (most < 0) return -1;
  uint64_t current = 0;
  const int64_t number = number_of(file, current);
  const ssize_t done = next(file, bytes, static_cast<size_t>(most), position);
  wrote(number, static_cast<uint64_t>(position), bytes, done);
  return done;
}
ssize_t writev(int file, const iovec* parts, int count) {
  NEXT(writev);
  size_t all = 0;
  for (int i = 0; i < count; ++i) all += parts[i].iov_len;
  const ssize_t most = taken("writev", all);
  if (most < 0) return -1;
  iovec first = parts[0];
  if (static_cast<size_t>(most) < all) {  // callers must expect that it takes one part
    for (int i = 1; i < count && first.iov_len == 0; ++i) first = parts[i];
    first.iov_len = std::min(first.iov_len, static_cast<size_t>(most));
    parts = &first;
    count = 1;
  }
  uint64_t position = 0;
  const int64_t number = number_of(file, position);
  const ssize_t done = next(file, parts, count);
  ssize_t left = done;
  for (int i = 0; i < count && left > 0; ++i) {
    const ssize_t n = std::min(left, static_cast<ssize_t>(parts[i].iov_len));
    wrote(number, position, parts[i].iov_base, n);
    position += static_cast<uint64_t>(n);
    left -= n;
  }
  return done;
}
size_t fwrite(const void* bytes, size_t size, size_t n, FILE* file) {
  NEXT(fwrite);
  const ssize_t most = taken("fwrite", n);
  return most < 0 ? 0 : next(bytes, size, static_cast<size_t>(most), file);
}

int ftruncate(int file, off_t size) noexcept {
  FAILS(ftruncate, -1);
  uint64_t position = 0;
  const int result = next(file, size);
  if (result == 0) resized(number_of(file, position), size);
  return result;
}
int truncate(const char* path, off_t size) noexcept {
  FAILS(truncate, -1);
  const int result = next(path, size);
  struct stat now;
  if (result == 0 && recorded(path) && ::stat(path, &now) == 0)
    resized(recorder.files.at(now.st_ino), size);
  return result;
}
int rename(const char* from, const char* to) noexcept {
  FAILS(rename, -1);
  return changed(next(from, to), Change::Rename, from, to);
}
int unlink(const char* path) noexcept {
  FAILS(unlink, -1);
  return changed(next(path), Change::Remove, path);
}
int remove(const char* path) noexcept {
  FAILS(remove, -1);
  return changed(next(path), Change::Remove, path);
}
int mkdir(const char* path, mode_t mode) noexcept {
  FAILS(mkdir, -1);
  return changed(next(path, mode), Change::MakeFolder, path);
}

#define PLAIN(result, name, error, parameters, arguments, ...) \
  result name parameters __VA_ARGS__ {                         \
    FAILS(name, error);                                        \
    return next arguments;                                     \
  }
PLAIN(int, unlinkat, -1, (int folder, const char* path, int flags), (folder, path, flags), noexcept)
PLAIN(int, flock, -1, (int file, int how), (file, how), noexcept)
PLAIN(int, fchmod, -1, (int file, mode_t mode), (file, mode), noexcept)
PLAIN(int, stat, -1, (const char* path, struct stat* out), (path, out), noexcept)
PLAIN(int, lstat, -1, (const char* path, struct stat* out), (path, out), noexcept)
PLAIN(int, fstat, -1, (int file, struct stat* out), (file, out), noexcept)
PLAIN(int, fstat64, -1, (int file, struct stat64* out), (file, out), noexcept)
PLAIN(int, statvfs, -1, (const char* path, struct statvfs* out), (path, out), noexcept)
PLAIN(off64_t, lseek64, -1, (int file, off64_t position, int from), (file, position, from),
      noexcept)
PLAIN(ssize_t, readlink, -1, (const char* path, char* out, size_t n), (path, out, n), noexcept)
PLAIN(char*, realpath, nullptr, (const char* path, char* out), (path, out), noexcept)
PLAIN(char*, getcwd, nullptr, (char* out, size_t n), (out, n), noexcept)
PLAIN(DIR*, fdopendir, nullptr, (int file), (file), )
PLAIN(DIR*, opendir, nullptr, (const char* path), (path), )
PLAIN(dirent*, readdir, nullptr, (DIR * folder), (folder), )

/// Counted, and not done: the power stays on, and a flush takes milliseconds.
int fsync(int file) {
  if (fails(of_files, "fsync")) return -1;
  flushed(file);
  return 0;
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*f)(void*),
                   void* argument) noexcept {
  NEXT(pthread_create);
  if (fails(of_threads, "pthread_create")) return EAGAIN;
  return next(thread, attributes, f, argument);
}

}  // extern "C"

namespace halftape::testing {
namespace {
void arm(Failures& f, const Fault& fault) {
  f.fault = fault;
  f.calls = 0;
  f.first = nullptr;
  f.armed = fault.nth > 0;
}
}  // namespace

FailingCalls::FailingCalls(const Fault& fault) { arm(of_files, fault); }
FailingCalls::~FailingCalls() { stop(); }
void FailingCalls::stop() { of_files.armed = false; }
const char* FailingCalls::failed() const { return of_files.first; }

Recording::Recording(const std::filesystem::path& root) {
  recorder = Recorder();
  recorder.root = root.string();
}
Recording::~Recording() { recorder.root.clear(); }
void Recording::mark(int64_t number) {
  recorder.changes.push_back({.kind = Change::Mark, .position = static_cast<uint64_t>(number)});
}
const std::vector<Change>& Recording::changes() const { return recorder.changes; }

RefusedThreads::RefusedThreads(int64_t nth, bool persists) {
  arm(of_threads, {nth, EAGAIN, persists});
}
RefusedThreads::~RefusedThreads() { of_threads.armed = false; }
bool RefusedThreads::refused() const { return of_threads.first != nullptr; }

}  // namespace halftape::testing
