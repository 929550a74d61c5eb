#include "halftape/io/file/file.h"

#include <cerrno>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "halftape/core/buffer.h"
#include "halftape/core/machine/os.h"
#include "halftape/core/machine/warn.h"

namespace halftape {
namespace fs = std::filesystem;
namespace {
std::string reason(int error) { return std::generic_category().message(error); }

/// The system reads a path up to a zero byte, and would take another file than the one asked for.
void refuse_zero_byte(std::string_view format, const fs::path& path) {
  if (path.native().find(fs::path::value_type{}) != fs::path::string_type::npos)
    fail_file(format, fs::path(path.c_str()), "expected a path, found a zero byte after this part");
}

/// Bytes that lie elsewhere, read like a file.
class Bytes : public std::streambuf {
 public:
  explicit Bytes(std::string_view bytes) {
    char* const begin = const_cast<char*>(bytes.data());  // setg() asks for it; nothing is written
    setg(begin, begin, begin + bytes.size());
  }

 protected:
  pos_type seekpos(pos_type to, std::ios::openmode) override {
    const off_type size = egptr() - eback();
    if (to < 0 || to > size) return pos_type(off_type(-1));
    setg(eback(), eback() + off_type(to), egptr());
    return to;
  }
};
}  // namespace

fs::path absolute_path(std::string_view format, const fs::path& path) {
  if (path.empty()) fail_file(format, "\"\"", "expected a path, found an empty one");
  refuse_zero_byte(format, path);
  std::error_code error;
  fs::path whole = fs::absolute(path, error);
  if (error) fail_file(format, path, "the program's folder cannot be found: ", error.message());
  return whole;
}

InputFile::InputFile(std::string format, fs::path path)
    : format_(std::move(format)), path_(std::move(path)), stream_(nullptr) {
  refuse_zero_byte(format_, path_);
  std::error_code error;
  const fs::file_status status = fs::status(path_, error);
  if (status.type() == fs::file_type::not_found)
    fail("expected a file, found nothing",
         path_.is_relative() ? "; looked from the folder " + fs::current_path(error).string() : "");
  if (fs::is_directory(status))
    fail("expected a file, found a folder; if the file lies inside it, move it up");
  if (!error && !fs::is_regular_file(status))
    fail("expected a regular file, found a device, pipe or socket; copy the data to a file");
  auto file = std::make_unique<std::filebuf>();
  if (error || !file->open(path_, std::ios::in | std::ios::binary))
    fail("expected a readable file, found one that does not open",
         error ? " (" + error.message() + ")" : "", "; check its permissions");
  // Of the file that is open: a save may put another one in its place at any time.
  const auto end = static_cast<std::streamoff>(file->pubseekoff(0, std::ios::end));
  if (end < 0 || file->pubseekoff(0, std::ios::beg) != std::streampos(0))
    fail("expected a file whose size can be found");
  size_ = static_cast<uint64_t>(end);
  source_ = std::move(file);
  stream_.rdbuf(source_.get());
}

InputFile::InputFile(std::string format, std::string_view bytes, fs::path name)
    : format_(std::move(format)), path_(std::move(name)), stream_(nullptr), size_(bytes.size()) {
  source_ = std::make_unique<Bytes>(bytes);
  stream_.rdbuf(source_.get());
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

std::string read_file(const std::string& format, const fs::path& path) {
  InputFile file(format, path);
  std::string bytes = host_string(file.size());
  file.read_at(0, bytes.data(), bytes.size(), "the file");
  return bytes;
}

void OutputFile::fail(const os::FileFailure& failure) const {
  std::ostringstream text;
  text << format_ << ": " << path_.string() << ": ";
  if (failure.renamed) {
    text << "the new file is in place, but " << failure.doing
         << " to the disk failed: " << reason(failure.error);
    throw FileError(text.str());
  }
  text << failure.doing << " failed after " << size_ << " bytes: " << reason(failure.error);
  std::error_code ignored;
  // Asked about an empty path, GCC's library for Windows ends the program.
  if (const fs::path folder = path_.parent_path(); !folder.empty())
    if (const fs::space_info space = fs::space(folder, ignored); !ignored)
      text << " (" << space.available << " bytes are free there)";
  if (fs::exists(path_, ignored)) text << "; the former file is as it was";
  throw FileError(text.str());
}

template <class F>
void OutputFile::guarded(F f) const {
  try {
    f();
  } catch (const os::FileFailure& failure) {
    fail(failure);
  }
}

OutputFile::OutputFile(std::string format, const fs::path& path) : format_(std::move(format)) {
  path_ = absolute_path(format_, path);
  std::error_code error;
  // A link stays; the file that it points to, there or not, is replaced.
  for (int links = 0; fs::is_symlink(path_, error); ++links) {
    if (links == 40) fail({"following links", ELOOP});
    path_ = path_.parent_path() / fs::read_symlink(path_, error);
    if (error) fail({"reading a link", error.value()});
  }
  if (fs::is_directory(path_, error)) fail({"opening it as a file", EISDIR});
  if (fs::exists(path_, error) && !fs::is_regular_file(path_, error))
    fail({"replacing a device, pipe or socket", EPERM});
  guarded([&] { file_ = std::make_unique<os::PartialFile>(path_); });
}

OutputFile::~OutputFile() = default;

void OutputFile::write_at(uint64_t position, const void* bytes, size_t n) {
  guarded([&] { file_->write_at(position, bytes, n); });
}

void OutputFile::write(const void* bytes, size_t n) {
  write_at(size_, bytes, n);
  size_ += n;
}

void OutputFile::commit() {
  guarded([&] { file_->commit(); });
}

void write_file(const std::string& format, const fs::path& path, std::string_view bytes) {
  OutputFile file(format, path);
  file.write(bytes.data(), bytes.size());
  file.commit();
}

void make_folders(const std::string& format, const fs::path& folder) {
  try {
    os::make_folders(folder);
  } catch (const os::FileFailure& failure) {
    fail_file(format, folder, failure.doing, " failed: ", reason(failure.error));
  }
}

std::shared_ptr<const int> lock_path(const std::string& format, const fs::path& path,
                                     const char* what) {
  int error = 0;
  os::PathLock lock = os::lock_path(path, error);
  if (error == EAGAIN)
    fail_file(format, path, "another run has it open for ", what,
              "; give each run a folder of its own, or wait for that one to end");
  if (error != 0)
    warn(format + ": " + path.string() + " cannot be locked (" + reason(error) +
         "): that no other run uses it is for you to see to");
  return lock;
}

std::string process_name() { return os::host_name() + "." + std::to_string(os::process_id()); }

}  // namespace halftape
