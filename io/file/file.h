// Files that are read with care, and written whole or not at all.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <istream>
#include <memory>
#include <streambuf>
#include <string>
#include <string_view>

#include "halftape/core/check.h"

namespace halftape {

namespace os {
class PartialFile;
struct FileFailure;
}  // namespace os

/// A file that is missing, damaged, or cannot be written. The message names the file, the place in
/// it, what was expected and what was found.
class FileError : public Error {
 public:
  using Error::Error;
};

namespace data {
/// Thrown for data that is missing or damaged; the message names the file, what was expected, what
/// was found and the way out.
using DataError = FileError;
}  // namespace data

/// Throws FileError: "format: path: parts".
template <class... Parts>
[[noreturn]] void fail_file(std::string_view format, const std::filesystem::path& path,
                            const Parts&... parts) {
  throw FileError(detail::str(format, ": ", path.string(), ": ", parts...));
}

/// The path from the root, which holds when the program changes its folder. Throws FileError for an
/// empty one, and for one with a zero byte.
std::filesystem::path absolute_path(std::string_view format, const std::filesystem::path& path);

/// A regular file, open for reading.
class InputFile {
 public:
  /// `format`: the first word of its messages, "idx". Throws FileError when there is no such file,
  /// or none that opens.
  InputFile(std::string format, std::filesystem::path path);
  /// Bytes in memory, which outlive it, as if they were a file; messages call them `name`.
  InputFile(std::string format, std::string_view bytes, std::filesystem::path name);

  /// Returns less than n only at the end of the file.
  size_t read(void* out, size_t n);
  /// Goes on at that byte of the file.
  void seek(uint64_t position);
  /// Exactly n bytes from `position`, or throws: the message says `what` they are.
  void read_at(uint64_t position, void* out, size_t n, const char* what);
  uint64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }

  /// Throws FileError: "format: path: parts".
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    fail_file(format_, path_, parts...);
  }

 private:
  std::string format_;
  std::filesystem::path path_;
  std::unique_ptr<std::streambuf> source_;
  std::istream stream_;
  uint64_t size_ = 0;
};

/// The bytes of a regular file. Throws as InputFile.
std::string read_file(const std::string& format, const std::filesystem::path& path);

/// A file that appears under its name whole, or not at all: written beside it as `path`.partial,
/// flushed to the disk, renamed, and the folder flushed. Whatever happens before commit() returns,
/// a file that had the name before is as it was, or is the new one.
///
/// Everything throws FileError, with the reason of the operating system. One writer at a time: a
/// second one for the same path throws. On systems without POSIX nothing is flushed to the disk,
/// and a power failure may cost the file.
class OutputFile {
 public:
  OutputFile(std::string format, const std::filesystem::path& path);
  /// Without commit(): removes what was written.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Appends.
  void write(const void* bytes, size_t n);
  /// Over bytes that have been written.
  void write_at(uint64_t position, const void* bytes, size_t n);
  uint64_t size() const { return size_; }
  /// Puts the written file into its place, whole.
  void commit();

 private:
  [[noreturn]] void fail(const os::FileFailure& failure) const;
  template <class F>
  void guarded(F f) const;

  std::string format_;
  std::filesystem::path path_;
  uint64_t size_ = 0;
  std::unique_ptr<os::PartialFile> file_;
};

/// Writes a whole file, as OutputFile.
void write_file(const std::string& format, const std::filesystem::path& path,
                std::string_view bytes);
/// Creates a folder with its parents, so that a power failure does not cost it. Throws FileError.
void make_folders(const std::string& format, const std::filesystem::path& folder);
/// Keeps other processes, and other callers in this one, from locking a file or folder until the
/// last copy goes. Throws FileError, which names `what` it is locked for, if another has it. Warns
/// and returns null where the file system cannot lock.
std::shared_ptr<const int> lock_path(const std::string& format, const std::filesystem::path& path,
                                     const char* what);

/// "HOST.NUMBER" of this process; "localhost.0" on an unknown operating system.
std::string process_name();

}  // namespace halftape
