// A whole file in memory, for the readers of datasets.
#pragma once
#include <filesystem>
#include <string>

namespace halftape::data {

/// The bytes of a regular file. `format`: the first word of messages. Throws DataError when there
/// is no such file, or none that can be read.
std::string read_file(const std::string& format, const std::filesystem::path& path);

}  // namespace halftape::data
