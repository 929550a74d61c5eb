// Zip archives as NumPy's .npz files are: stored or deflated members, below 4 GiB.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "halftape/io/file/file.h"

namespace halftape {

struct ZipMember {
  std::string name;
  bool deflated = false;
  uint32_t crc = 0;
  uint64_t packed = 0, size = 0;  // bytes in the file, and unpacked
  uint64_t offset = 0;            // of its local header; then of its data
};

/// The members in the order of the archive's directory. Throws FileError unless the file is an
/// archive from its first byte to its last, each name is there once, and no two members share
/// bytes. Encrypted archives, those in pieces and those of 4 GiB and more are refused.
std::vector<ZipMember> zip_members(InputFile& file);
/// Unpacked; throws FileError when its bytes do not give its CRC.
std::string zip_read(InputFile& file, const ZipMember& member);

class ZipWriter {
 public:
  explicit ZipWriter(OutputFile& file) : file_(file) {}
  /// Throws Error beyond 4 GiB.
  void add(const std::string& name, std::string_view bytes, bool deflate);
  /// Writes the directory; nothing can be added after it. The caller commits the file.
  void finish();

 private:
  OutputFile& file_;
  std::vector<ZipMember> members_;
};

}  // namespace halftape
