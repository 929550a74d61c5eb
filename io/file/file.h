// Files that are read with care, and written whole or not at all.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

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

/// A regular file, open for reading.
class InputFile {
 public:
  /// `format`: the first word of its messages, "idx". Throws FileError when there is no such file,
  /// or none that opens.
  InputFile(std::string format, std::filesystem::path path);

  /// Returns less than n only at the end of the file.
  size_t read(void* out, size_t n);
  void seek(uint64_t position);
  /// Exactly n bytes from `position`, or throws: `what` they are stands in the message.
  void read_at(uint64_t position, void* out, size_t n, const char* what);
  uint64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }

  /// Throws FileError: "format: path: parts".
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    std::ostringstream text;
    text << format_ << ": " << path_.string() << ": ";
    (text << ... << parts);
    throw FileError(text.str());
  }

 private:
  std::string format_;
  std::filesystem::path path_;
  std::ifstream stream_;
  uint64_t size_ = 0;
};

/// A file that comes to stand under its name whole, or not at all: written beside it under the name
/// `path`.partial, flushed to the disk, renamed, and the folder flushed. Whatever happens before
/// commit() returns, a file that had the name before is as it was, or is the new one.
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

  void write(const void* bytes, size_t n);
  /// Over bytes that have been written.
  void write_at(uint64_t position, const void* bytes, size_t n);
  uint64_t size() const { return size_; }
  void commit();

 private:
  [[noreturn]] void fail(const os::FileFailure& failure) const;

  std::string format_;
  std::filesystem::path path_;
  uint64_t size_ = 0;
  std::unique_ptr<os::PartialFile> file_;
};

/// "HOST.NUMBER" of this process; "localhost.0" where the operating system is not asked.
std::string process_name();

}  // namespace halftape
