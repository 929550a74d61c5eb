// Files that grow by whole pieces: logs, of which every state is a file that can be read.
#pragma once
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace halftape {

/// Opens a file to append() to.
void open_to_append(std::ofstream& file, const std::filesystem::path& path);
/// Appends all bytes, or throws FileError and leaves the file as it was.
void append(std::ofstream& file, const std::string& format, const std::filesystem::path& path,
            std::string_view bytes);

}  // namespace halftape
