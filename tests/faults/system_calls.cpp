#include "halftape/tests/faults/system_calls.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

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
  if (!f.armed || f.fault.error == 0) return false;
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

/// How many of n bytes a write takes.
size_t taken(const char* name, size_t n) {
  Failures& f = of_files;
  if (!f.armed || f.fault.error != 0 || n < 2 || ++f.calls != f.fault.nth) return n;
  f.first = name;
  return n / 2;
}

mode_t mode_in(va_list arguments, int flags) {
  return flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
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
  return next(path, flags, mode);
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
  return next(path, mode);
}
FILE* fopen64(const char* path, const char* mode) {
  FAILS(fopen64, nullptr);
  return next(path, mode);
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
  FAILS(write, -1);
  return next(file, bytes, taken("write", n));
}
ssize_t pwrite(int file, const void* bytes, size_t n, off_t position) {
  FAILS(pwrite, -1);
  return next(file, bytes, taken("pwrite", n), position);
}
ssize_t writev(int file, const iovec* parts, int count) {
  FAILS(writev, -1);
  // Takes the first part, or half of it, which callers must expect.
  if (taken("writev", 2) == 1) return ::write(file, parts[0].iov_base, parts[0].iov_len / 2);
  return next(file, parts, count);
}
size_t fwrite(const void* bytes, size_t size, size_t n, FILE* file) {
  FAILS(fwrite, 0);
  return next(bytes, size, taken("fwrite", n), file);
}

#define PLAIN(result, name, error, parameters, arguments, ...) \
  result name parameters __VA_ARGS__ {                         \
    FAILS(name, error);                                        \
    return next arguments;                                     \
  }
PLAIN(int, ftruncate, -1, (int file, off_t size), (file, size), noexcept)
PLAIN(int, truncate, -1, (const char* path, off_t size), (path, size), noexcept)
PLAIN(int, rename, -1, (const char* from, const char* to), (from, to), noexcept)
PLAIN(int, unlink, -1, (const char* path), (path), noexcept)
PLAIN(int, unlinkat, -1, (int folder, const char* path, int flags), (folder, path, flags), noexcept)
PLAIN(int, remove, -1, (const char* path), (path), noexcept)
PLAIN(int, mkdir, -1, (const char* path, mode_t mode), (path, mode), noexcept)
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
int fsync(int) { return fails(of_files, "fsync") ? -1 : 0; }

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

RefusedThreads::RefusedThreads(int64_t nth, bool persists) {
  arm(of_threads, {nth, EAGAIN, persists});
}
RefusedThreads::~RefusedThreads() { of_threads.armed = false; }
bool RefusedThreads::refused() const { return of_threads.first != nullptr; }

}  // namespace halftape::testing
