// Reads a file whole.
#include "halftape/io/data/sets/file.h"

#include <fstream>
#include <system_error>

#include "halftape/io/formats/images.h"

namespace halftape::data {

std::string read_file(const std::string& format, const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  const auto fail = [&](const std::string& what) {
    throw DataError(format + ": " + path.string() + ": " + what);
  };
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found)
    fail("expected a file, found nothing; looked from the folder " +
         fs::current_path(error).string());
  if (!fs::is_regular_file(status))
    fail(fs::is_directory(status) ? "expected a file, found a folder"
                                  : "expected a regular file, found something else");
  std::ifstream file(path, std::ios::binary);
  if (!file) fail("the file does not open; check its permissions");
  std::string bytes(fs::file_size(path), '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (static_cast<size_t>(file.gcount()) != bytes.size())
    fail("expected " + std::to_string(bytes.size()) + " bytes, found " +
         std::to_string(file.gcount()) + "; it changed while it was read, or the disk fails");
  return bytes;
}

}  // namespace halftape::data
