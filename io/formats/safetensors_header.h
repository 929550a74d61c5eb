// The header of a safetensors file: JSON of one fixed form, read strictly.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "halftape/core/dtype.h"
#include "halftape/core/shape.h"
#include "halftape/io/file/file.h"

namespace halftape::safetensors {

inline constexpr uint64_t kMaxHeader = 100'000'000;  // bytes; the format's own limit
inline constexpr size_t kMaxName = 4096;             // bytes

/// {"NAME":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},…}
struct Entry {
  std::string name;
  Dtype dtype = kFloat32;
  Shape shape;
  uint64_t begin = 0, end = 0;  // from the end of the header on
};
struct Header {
  std::vector<Entry> entries;  // in the order of the header
  std::map<std::string, std::string> metadata;
};

/// Throws FileError unless the text is such JSON, each name and field occurs once, every
/// dtype is one of ours, and the tensors cover `data_size` bytes without gap or overlap.
Header parse_header(std::string_view text, uint64_t data_size, const InputFile& file);
/// Padded with spaces to a multiple of eight bytes.
std::string header_text(const Header& header);
/// Positions of the entries in the order of their data.
std::vector<size_t> by_offset(const std::vector<Entry>& entries);

}  // namespace halftape::safetensors
