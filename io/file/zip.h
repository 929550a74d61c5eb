// Zip archives as NumPy's .npz and PyTorch's .pt files are: stored or deflated members, ZIP64 where
// they need it.
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
/// bytes. Encrypted archives and those in pieces are refused.
std::vector<ZipMember> zip_members(InputFile& file);
/// Unpacked, `member.size` bytes; throws FileError when they do not give its CRC.
void zip_read(InputFile& file, const ZipMember& member, void* out);
std::string zip_read(InputFile& file, const ZipMember& member);

class ZipWriter {
 public:
  explicit ZipWriter(OutputFile& file) : file_(file) {}
  /// The bytes begin at a multiple of `alignment` in the file. Throws Error for names of 64 KiB.
  void add(const std::string& name, std::string_view bytes, bool deflate, size_t alignment = 1);
  /// Writes the directory; nothing can be added after it. The caller commits the file.
  void finish();

 private:
  OutputFile& file_;
  std::vector<ZipMember> members_;
};

}  // namespace halftape
