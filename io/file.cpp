#include "halftape/io/file.h"

#include <cerrno>
#include <system_error>
#include <utility>

#if defined(__unix__) || defined(__APPLE__)
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#define HALFTAPE_POSIX 1
#else
#define HALFTAPE_POSIX 0
#endif

namespace halftape {
namespace fs = std::filesystem;

InputFile::InputFile(std::string format, fs::path path)
    : format_(std::move(format)), path_(std::move(path)) {
  std::error_code error;
  const fs::file_status status = fs::status(path_, error);
  if (status.type() == fs::file_type::not_found) fail("expected a file, found nothing");
  if (fs::is_directory(status))
    fail("expected a file, found a folder; if the file lies inside it, move it up");
  if (!error && !fs::is_regular_file(status))
    fail("expected a regular file, found a device, pipe or socket; copy the data to a file");
  if (!error) size_ = fs::file_size(path_, error);
  if (!error) stream_.open(path_, std::ios::binary);
  if (error || !stream_)
    fail("expected a readable file, found one that does not open",
         error ? " (" + error.message() + ")" : "", "; check its permissions");
}

size_t InputFile::read(void* out, size_t n) {
  stream_.read(static_cast<char*>(out), static_cast<std::streamsize>(n));
  if (stream_.bad()) fail("expected to read on, found an input error; check the disk");
  return static_cast<size_t>(stream_.gcount());
}

void InputFile::seek(uint64_t position) {
  stream_.clear();
  stream_.seekg(static_cast<std::streamoff>(position));
}

void InputFile::read_at(uint64_t position, void* out, size_t n, const char* what) {
  seek(position);
  const size_t got = read(out, n);
  if (got < n)
    fail(what, ": expected ", n, " bytes from byte ", position, " on, found the end after ", got,
         ": the file is truncated");
}

void OutputFile::fail(const char* doing, int error) const {
  std::ostringstream text;
  text << format_ << ": " << path_.string() << ": " << doing << " failed after " << size_
       << " bytes: " << std::generic_category().message(error);
  std::error_code ignored;
  const fs::space_info space = fs::space(path_.parent_path(), ignored);
  if (!ignored) text << " (" << space.available << " bytes are free there)";
  if (fs::exists(path_, ignored)) text << "; the former file is as it was";
  throw FileError(text.str());
}

OutputFile::OutputFile(std::string format, const fs::path& path) : format_(std::move(format)) {
  std::error_code error;
  // Through a link, what it points to is replaced, and the link stays.
  path_ = fs::is_symlink(path, error) ? fs::weakly_canonical(path, error) : path;
  path_ = fs::absolute(error || path_.empty() ? path : path_, error);
  if (fs::is_directory(path_, error)) fail("opening it as a file", EISDIR);
  partial_ = path_;
  partial_ += ".partial";
  open_partial();
}

OutputFile::~OutputFile() { close(); }

#if HALFTAPE_POSIX

void OutputFile::open_partial() {
  // One name for all writers, so that a killed one leaves no second file behind; a lock says
  // whether its owner still lives. Between open and lock the owner may have renamed it: then it is
  // another one's finished file, and we start again.
  for (;;) {
    file_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (file_ < 0) fail("creating the file beside it, with .partial at its end,", errno);
    struct stat mine, there;
    // A file system without locks (ENOLCK, EOPNOTSUPP) leaves it to the user to have one writer.
    if (::flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      ::close(std::exchange(file_, -1));
      fail("locking, as another save of it is under way,", EWOULDBLOCK);
    }
    if (::fstat(file_, &mine) == 0 && ::stat(partial_.c_str(), &there) == 0 &&
        mine.st_ino == there.st_ino && mine.st_dev == there.st_dev)
      break;
    ::close(std::exchange(file_, -1));
  }
  struct stat former;
  if (::ftruncate(file_, 0) != 0) {
    const int error = errno;
    close();
    fail("emptying the file beside it", error);
  }
  if (::stat(path_.c_str(), &former) == 0) (void)::fchmod(file_, former.st_mode & 07777);
}

void OutputFile::close() noexcept {
  if (file_ < 0) return;
  ::unlink(partial_.c_str());  // while it is still locked: it is ours
  ::close(std::exchange(file_, -1));
}

void OutputFile::write_at(uint64_t position, const void* bytes, size_t n) {
  const char* from = static_cast<const char*>(bytes);
  while (n > 0) {
    const ssize_t done = ::pwrite(file_, from, n, static_cast<off_t>(position));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) fail("writing", done < 0 ? errno : EIO);
    from += done;
    n -= static_cast<size_t>(done);
    position += static_cast<uint64_t>(done);
  }
}

void OutputFile::commit() {
  if (::fsync(file_) != 0) fail("flushing to the disk", errno);
  if (::rename(partial_.c_str(), path_.c_str()) != 0) fail("renaming", errno);
  ::close(std::exchange(file_, -1));
  // The new name is safe only once the folder is on the disk, too. Some file systems cannot flush a
  // folder and say so by EINVAL.
  const int folder = ::open(path_.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const int error = folder < 0 || ::fsync(folder) == 0 ? 0 : errno;
  if (folder >= 0) ::close(folder);
  if (error != 0 && error != EINVAL)
    throw FileError(format_ + ": " + path_.string() + ": the new file is in place, but flushing " +
                    "its folder to the disk failed: " + std::generic_category().message(error));
}

#else

void OutputFile::open_partial() {
  stream_.open(partial_, std::ios::binary | std::ios::trunc);
  if (!stream_) fail("creating the file beside it, with .partial at its end,", errno);
}

void OutputFile::close() noexcept {
  if (!stream_.is_open()) return;
  stream_.close();
  std::error_code ignored;
  fs::remove(partial_, ignored);
}

void OutputFile::write_at(uint64_t position, const void* bytes, size_t n) {
  stream_.seekp(static_cast<std::streamoff>(position));
  stream_.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(n));
  if (!stream_) fail("writing", errno);
}

void OutputFile::commit() {
  stream_.close();
  if (!stream_) fail("writing", errno);
  std::error_code error;
  fs::rename(partial_, path_, error);
  if (error) fail("renaming", error.value());
}

#endif

void OutputFile::write(const void* bytes, size_t n) {
  write_at(size_, bytes, n);
  size_ += n;
}

std::string process_name() {
#if defined(__unix__) || defined(__APPLE__)
  char host[256] = {};
  const bool known = gethostname(host, sizeof(host) - 1) == 0;
  return (known ? host : "localhost") + ("." + std::to_string(getpid()));
#else
  return "localhost.0";
#endif
}

}  // namespace halftape
