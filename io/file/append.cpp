#include "halftape/io/file/append.h"

#include <cstdint>
#include <system_error>

#include "halftape/io/file/file.h"

namespace halftape {
namespace fs = std::filesystem;

void open_to_append(std::ofstream& file, const fs::path& path) {
  // A buffer would be written again when the file closes, after a write of it that failed halfway.
  file.rdbuf()->pubsetbuf(nullptr, 0);
  file.open(path, std::ios::binary | std::ios::app);
}

void append(std::ofstream& file, const std::string& format, const fs::path& path,
            std::string_view bytes) {
  const auto former = static_cast<uint64_t>(file.seekp(0, std::ios::end).tellp());
  std::error_code error;
  // A file that was renamed meanwhile goes on growing, and what lies at the path is not touched.
  const bool is_there = fs::file_size(path, error) == former && !error;
  if (file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()))) return;
  if (is_there) {
    fs::resize_file(path, former, error);
    if (!error) file.clear();  // otherwise all later writes fail
  }
  fail_file(format, path, "writing failed; is the disk full?");
}

}  // namespace halftape
