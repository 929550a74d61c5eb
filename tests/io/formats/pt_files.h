// .pt files opcode by opcode, as no torch.save would write them.
#pragma once
#include <map>
#include <string>
#include <string_view>

#include "halftape/io/file/byte_order.h"
#include "halftape/io/file/file.h"
#include "halftape/io/file/zip.h"

namespace halftape::testing {

/// An archive of NAME/data.pkl, NAME/data/KEY and what else belongs to it.
inline void write_pt(const std::filesystem::path& path, const std::string& stream,
                     const std::map<std::string, std::string>& storages = {},
                     const std::string& byteorder = "little", const std::string& more = "") {
  OutputFile file("pt", path);
  ZipWriter zip(file);
  zip.add("x/data.pkl", stream, false);
  zip.add("x/byteorder", byteorder, false);
  for (const auto& [key, bytes] : storages) zip.add("x/data/" + key, bytes, false, 64);
  zip.add("x/version", "3\n", false);
  if (!more.empty()) zip.add("x/" + more, "", false);
  zip.finish();
  file.commit();
}

// Opcodes.
inline std::string text(std::string_view s) {
  return 'X' + little_endian(s.size(), 4) + std::string(s);
}
inline std::string number(int64_t n) {
  return "\x8a\x08" + little_endian(static_cast<uint64_t>(n), 8);
}
inline std::string numbers(std::initializer_list<int64_t> list) {
  std::string out = "(";
  for (const int64_t n : list) out += number(n);
  return out + 't';
}
inline std::string storage(const std::string& kind, const std::string& key, int64_t numel) {
  return "(" + text("storage") + "ctorch\n" + kind + "Storage\n" + text(key) + text("cpu") +
         number(numel) + "tQ";
}
inline std::string tensor_call(const std::string& storage, int64_t offset,
                               std::initializer_list<int64_t> sizes,
                               std::initializer_list<int64_t> strides) {
  return "ctorch._utils\n_rebuild_tensor_v2\n(" + storage + number(offset) + numbers(sizes) +
         numbers(strides) + "\x89" + "ccollections\nOrderedDict\n)RtR";
}
/// Of the values' opcodes a whole stream.
inline std::string stream(const std::string& value) { return "\x80\2" + value + "."; }
/// {"a": value}
inline std::string dict_of(const std::string& value) { return "}(" + text("a") + value + "u"; }

}  // namespace halftape::testing
