// Linux, macOS and what else has POSIX; WebAssembly, too.
#include "halftape/core/machine/os.h"
#if defined(__unix__) || defined(__APPLE__)
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__GLIBC__)
#include <link.h>
#endif
#if defined(__linux__)
#include <sched.h>
#endif
#if __has_include(<malloc.h>)
#include <malloc.h>
#endif
#if __has_include(<execinfo.h>)
#include <execinfo.h>
#define HALFTAPE_HAVE_EXECINFO 1
#endif
#if __has_include(<cxxabi.h>)
#include <cxxabi.h>
#endif
#if defined(__linux__)
#include <sys/auxv.h>
#include <sys/syscall.h>
#endif

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "halftape/core/machine/warn.h"

namespace halftape::os {
namespace fs = std::filesystem;

size_t call_stack(void** addresses, size_t n) {
#ifdef HALFTAPE_HAVE_EXECINFO
  return static_cast<size_t>(backtrace(addresses, static_cast<int>(n)));
#else
  (void)addresses, (void)n;
  return 0;
#endif
}

namespace {
/// A function as it was written, or as it is called in the file where that cannot be had.
std::string written(const char* symbol) {
#if __has_include(<cxxabi.h>)
  int failed = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(symbol, nullptr, nullptr, &failed), &std::free);
  if (text) return text.get();
#endif
  return symbol;
}
}  // namespace

CodePlace place_of(const void* address) {
  Dl_info info;
#if defined(__GLIBC__)
  // A program that is not position-independent has symbols of absolute addresses.
  link_map* map = nullptr;
  if (!dladdr1(address, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP)) return {};
  const uintptr_t moved_by = map ? map->l_addr : reinterpret_cast<uintptr_t>(info.dli_fbase);
#else
  if (!dladdr(address, &info)) return {};
  const auto moved_by = reinterpret_cast<uintptr_t>(info.dli_fbase);
#endif
  if (!info.dli_fname) return {};
  std::string file = info.dli_fname;
#if defined(__linux__)
  // dladdr() gives the main program the name that it was started by, which need not be a path.
  static const void* const program = [] {  // asked once: it looks at every symbol
    Dl_info main;
    return dladdr(reinterpret_cast<void*>(getauxval(AT_PHDR)), &main) ? main.dli_fbase : nullptr;
  }();
  if (program && program == info.dli_fbase) {
    std::error_code failed;
    file = fs::read_symlink("/proc/self/exe", failed);
  }
#endif
  return {file, reinterpret_cast<uintptr_t>(address) - moved_by,
          info.dli_sname ? written(info.dli_sname) : ""};
}

std::vector<fs::path> run_path_of([[maybe_unused]] const void* address) {
  std::vector<fs::path> folders;
#if defined(__GLIBC__)
  Dl_info info;
  link_map* map = nullptr;
  if (!dladdr1(address, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) || !map) return {};
  ElfW(Addr) names = 0, run_path = 0, older = 0;
  for (const ElfW(Dyn)* entry = map->l_ld; entry && entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_STRTAB) names = entry->d_un.d_ptr;
    if (entry->d_tag == DT_RUNPATH) run_path = entry->d_un.d_val;
    if (entry->d_tag == DT_RPATH) older = entry->d_un.d_val;
  }
  if (!run_path) run_path = older;  // of a linker with --disable-new-dtags
  if (!names || !run_path) return {};
  // Some systems leave the table's address as it is in the file.
  if (names < map->l_addr) names += map->l_addr;
  std::istringstream list(reinterpret_cast<const char*>(names) + run_path);
  for (std::string folder; std::getline(list, folder, ':');) {
    for (const std::string_view origin : {"$ORIGIN", "${ORIGIN}"})
      if (folder.starts_with(origin))
        folder.replace(0, origin.size(), fs::path(place_of(address).file).parent_path().string());
    if (folder.starts_with('/')) folders.emplace_back(folder);
  }
#endif
  return folders;
}
void* load_library(const std::string& path, std::string& why_not) {
#if defined(__EMSCRIPTEN__)  // whose dlopen() ends the program
  (void)path;
  why_not = "WebAssembly has no dlopen()";
  return nullptr;
#else
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) why_not = dlerror();
  return library;
#endif
}

void* symbol(void* library, const char* name) { return dlsym(library, name); }

bool is_as_safe_as(const fs::path& file, const fs::path& program) {
  struct stat link, theirs, ours;
  const auto trusted = [&](uid_t owner) { return owner == 0 || owner == ours.st_uid; };
  return ::lstat(file.c_str(), &link) == 0 && ::stat(file.c_str(), &theirs) == 0 &&
         ::stat(program.c_str(), &ours) == 0 && S_ISREG(theirs.st_mode) &&
         !(theirs.st_mode & S_IWOTH) &&
         (!(theirs.st_mode & S_IWGRP) || theirs.st_gid == ours.st_gid) && trusted(theirs.st_uid) &&
         trusted(link.st_uid);
}

const char* secure_environment(const char* name) {
#if defined(__GLIBC__)
  return ::secure_getenv(name);
#else
  return std::getenv(name);
#endif
}

int processors() {
#if defined(__linux__)
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
#endif
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

bool may_use_amx() {
#if defined(__linux__) && defined(__x86_64__)
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, its component
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

void* aligned_alloc(size_t alignment, size_t size) {
#if defined(MADV_HUGEPAGE)
  // Pages of 2 MiB for what has many of them: a table of those of 4 KiB is walked through as often
  // as memory is read. The system does as it likes.
  constexpr size_t kHuge = size_t{1} << 21;
  if (size >= 4 * kHuge && alignment <= kHuge) {
    void* block = nullptr;
    if (posix_memalign(&block, kHuge, size) != 0) return nullptr;
    madvise(block, size / kHuge * kHuge, MADV_HUGEPAGE);
    return block;
  }
#endif
  return std::aligned_alloc(alignment, size);
}
void aligned_free(void* block) { std::free(block); }
void trim_heap() noexcept {
#if defined(__GLIBC__)
  ::malloc_trim(0);
#endif
}

void after_fork_in_child(void (*f)()) { pthread_atfork(nullptr, nullptr, f); }

#if defined(__EMSCRIPTEN__)  // without signals
NoPipeSignal::NoPipeSignal() = default;
NoPipeSignal::~NoPipeSignal() { (void)ours_; }
#else
namespace {
sigset_t pipe_signal() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGPIPE);
  return set;
}
bool pipe_signal_waits() {
  sigset_t waiting;
  return sigpending(&waiting) == 0 && sigismember(&waiting, SIGPIPE) == 1;
}
}  // namespace

NoPipeSignal::NoPipeSignal() {
  const sigset_t pipe = pipe_signal();
  sigset_t before;
  // One that waits already is the caller's, who has blocked it.
  ours_ = !pipe_signal_waits() && pthread_sigmask(SIG_BLOCK, &pipe, &before) == 0 &&
          sigismember(&before, SIGPIPE) == 0;
}

NoPipeSignal::~NoPipeSignal() {
  if (!ours_) return;
  const sigset_t pipe = pipe_signal();
  // What waits would be delivered now.
#if defined(__APPLE__)
  int taken;
  if (pipe_signal_waits()) sigwait(&pipe, &taken);
#else
  const timespec now{};
  while (pipe_signal_waits() && sigtimedwait(&pipe, nullptr, &now) == SIGPIPE) continue;
#endif
  pthread_sigmask(SIG_UNBLOCK, &pipe, nullptr);
}
#endif

std::string host_name() {
  char host[256] = {};
  return gethostname(host, sizeof(host) - 1) == 0 ? host : "localhost";
}

int64_t process_id() { return getpid(); }

std::string output_of(const std::string& command) {
  std::string text;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), &pclose);
  if (!pipe) return text;
  std::array<char, 256> part;
  while (std::fgets(part.data(), part.size(), pipe.get())) text += part.data();
  return text;
}

void open_standard_files() {
  int file = 0;  // open() gives the lowest number that is free
  while (file >= 0 && file <= STDERR_FILENO) file = ::open("/dev/null", O_RDWR);
  if (file > STDERR_FILENO) ::close(file);
}
bool stdout_is_terminal() { return isatty(STDOUT_FILENO) != 0; }

bool terminal_takes_escapes() {
  const char* const kind = std::getenv("TERM");
  return stdout_is_terminal() && kind && *kind && std::string_view(kind) != "dumb";
}

int terminal_width() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

namespace {
/// A new name in a folder is safe only once the folder is on the disk, too. Some file systems
/// cannot flush a folder and return EINVAL.
void flush_folder(const fs::path& folder) {
  const int file =
      ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0)
    return warn("the folder " + folder.string() + " cannot be opened to flush it to the disk (" +
                std::generic_category().message(errno) +
                "): after a power failure a new file in it may be missing");
  const int error = ::fsync(file) == 0 ? 0 : errno;
  ::close(file);
  if (error != 0 && error != EINVAL) throw FileFailure{"flushing its folder", error, true};
}
}  // namespace

void make_folders(const fs::path& folder) {
  std::error_code ignored;
  if (folder.empty() || fs::is_directory(folder, ignored)) return;
  // The root, too, is no folder to a disk that fails.
  if (folder.has_relative_path()) make_folders(folder.parent_path());
  if (::mkdir(folder.c_str(), 0777) == 0)
    flush_folder(folder.parent_path());
  else if (errno != EEXIST)
    throw FileFailure{"creating the folder", errno};
}

namespace {
/// Closes it at the end.
struct OpenFile {
  int file = -1;
  OpenFile() = default;
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() { close(); }
  void close() {
    if (file >= 0) ::close(std::exchange(file, -1));
  }
};
}  // namespace

std::vector<std::string> names_in(const fs::path& folder, int& error) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()), &::closedir);
  error = open ? 0 : errno;
  while (open) {
    errno = 0;
    const dirent* const entry = ::readdir(open.get());
    if (!entry) {
      error = errno;
      break;
    }
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  return names;
}

int write_new_file(const fs::path& path, std::string_view bytes) {
  // x: a link that lies there is not followed.
  std::FILE* const file = std::fopen(path.c_str(), "wbx");
  if (!file) return errno;
  int error = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size() ? 0 : errno;
  if (std::fclose(file) != 0 && error == 0) error = errno;
  if (error != 0) ::unlink(path.c_str());
  return error;
}

bool locks(const PathLock& lock, const fs::path& path) {
  struct stat mine, there;
  return ::fstat(*lock, &mine) == 0 && ::stat(path.c_str(), &there) == 0 &&
         mine.st_ino == there.st_ino && mine.st_dev == there.st_dev;
}

PathLock lock_path(const fs::path& path, int& error) {
  const auto held = std::make_shared<OpenFile>();
  int& file = held->file;
  for (;; held->close()) {
    // Network file systems lock only what is open for writing, which a folder cannot be.
    file = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    error = file >= 0 && ::flock(file, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    if (error != 0) return nullptr;
    // The former holder may have replaced the file in the meantime.
    if (PathLock lock(held, &held->file); locks(lock, path)) return lock;
  }
}

struct PartialFile::Open : OpenFile {};

namespace {
/// The mode for a file that replaces one of another mode. A group that is not the former one gets
/// no more than others.
mode_t mode_like(const struct stat& former, bool same_group) {
  const mode_t mode = former.st_mode & 0777, others = mode & 07;
  return same_group ? mode : mode & (0707 | others << 3);
}

/// Gives a new file owner, group and mode of the one that it replaces, as far as this user may.
void take_owner_and_mode(int file, const struct stat& former) {
  const bool group = ::fchown(file, former.st_uid, former.st_gid) == 0 ||
                     ::fchown(file, static_cast<uid_t>(-1), former.st_gid) == 0;
  (void)::fchmod(file, mode_like(former, group));
}
}  // namespace

PartialFile::PartialFile(const fs::path& path)
    : path_(path), partial_(path), open_(std::make_unique<Open>()) {
  partial_ += ".partial";
  struct stat former;
  const bool replaces = ::stat(path_.c_str(), &former) == 0;
  if (replaces && ::faccessat(AT_FDCWD, path_.c_str(), W_OK, AT_EACCESS) != 0)
    throw FileFailure{"replacing a file that may not be written to", errno};
  int& file = open_->file;
  // All writers use one name, so that a killed writer leaves no second file behind; a lock shows
  // whether the owner still lives. Between open and lock the owner may have renamed the file: then
  // this is a finished file of another writer, and we start again.
  for (;; open_->close()) {
    // Whoever may write to the folder may have put a link or a pipe there: it is not followed.
    file = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                  replaces ? 0600 : 0666);
    if (file < 0)
      throw FileFailure{"creating the file beside it, with .partial at its end,", errno};
    struct stat mine, there;
    if (::fstat(file, &mine) == 0 && (!S_ISREG(mine.st_mode) || mine.st_nlink > 1))
      throw FileFailure{"taking the name with .partial at its end, which a link or device has,",
                        EEXIST};
    // A file system without locks (ENOLCK, EOPNOTSUPP) leaves it to the user to have one writer.
    if (::flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      throw FileFailure{"locking, as another save of it is under way,", EAGAIN};
    if (::fstat(file, &mine) == 0 && ::lstat(partial_.c_str(), &there) == 0 &&
        mine.st_ino == there.st_ino && mine.st_dev == there.st_dev)
      break;
  }
  if (::ftruncate(file, 0) != 0) {
    const int error = errno;
    ::unlink(partial_.c_str());
    throw FileFailure{"emptying the file beside it", error};
  }
  // Nobody reads here what the former file would not show. A file that is left behind must be one
  // that the next save can open.
  struct stat mine;
  if (replaces && ::fstat(file, &mine) == 0)
    (void)::fchmod(file, 0200 | mode_like(former, mine.st_gid == former.st_gid));
}

PartialFile::~PartialFile() {
  if (open_->file < 0) return;
  ::unlink(partial_.c_str());  // the file is ours while it is locked
}

void PartialFile::write_at(uint64_t position, const void* bytes, size_t n) {
  const char* from = static_cast<const char*>(bytes);
  while (n > 0) {
    const ssize_t done = ::pwrite(open_->file, from, n, static_cast<off_t>(position));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) throw FileFailure{"writing", done < 0 ? errno : EIO};
    from += done;
    n -= static_cast<size_t>(done);
    position += static_cast<uint64_t>(done);
  }
}

void PartialFile::commit() {
  struct stat former;
  if (::stat(path_.c_str(), &former) == 0) take_owner_and_mode(open_->file, former);
  if (::fsync(open_->file) != 0) throw FileFailure{"flushing to the disk", errno};
  if (::rename(partial_.c_str(), path_.c_str()) != 0) throw FileFailure{"renaming", errno};
  open_->close();
  flush_folder(path_.parent_path());
}

}  // namespace halftape::os
#endif
