// Files for the tests of datasets, removed at the end of a test.
#pragma once
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <string_view>

namespace halftape::testing {

class DataFolder {
 public:
  DataFolder() {
    std::random_device random;
    do {
      path_ = std::filesystem::temp_directory_path() /
              ("halftape_data_test_" + std::to_string(random()));
    } while (!std::filesystem::create_directory(path_));
  }
  ~DataFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  DataFolder(const DataFolder&) = delete;
  DataFolder& operator=(const DataFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Writes a file, and gives its path.
  std::filesystem::path file(const std::string& name, std::string_view bytes) const {
    const std::filesystem::path path = path_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream stream(path, std::ios::binary | std::ios::trunc);
    stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    REQUIRE(stream.good());
    return path;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace halftape::testing
