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
  std::error_code error;
  const uint64_t former = fs::file_size(path, error);
  if (!error && file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()))) return;
  if (!error) fs::resize_file(path, former, error);
  if (!error) file.clear();  // otherwise all later writes fail
  fail_file(format, path, "writing failed; is the disk full?");
}

}  // namespace halftape
