// Inputs whose check sums are made right before they are read, so that changes get past them, if
// their first byte is odd.
#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "halftape/io/file/byte_order.h"
#include "halftape/io/file/crc.h"

namespace halftape::fuzz {

/// The input without its first byte, repaired if that byte is odd.
inline std::string file_of(std::string_view input,
                           const std::function<void(std::string&)>& repair) {
  if (input.empty()) return {};
  std::string bytes(input.substr(1));
  if (input[0] & 1) repair(bytes);
  return bytes;
}

/// Replaces the eight digits behind `key` by the CRC-32C of the bytes with zeros in their place.
inline void repair_safetensors(std::string& bytes) {
  const size_t key = bytes.find("\"halftape.crc32c\":\"");
  if (key == bytes.npos || bytes.size() < key + 27) return;
  bytes.replace(key + 19, 8, "00000000");
  const std::string digits = hex(big_endian(crc32c(bytes.data(), bytes.size()), 4));
  bytes.replace(key + 19, 8, digits);
}

/// Makes the sum right with which an archive of whole numbers ends.
inline void repair_archive(std::string& bytes) {
  const size_t body = bytes.find('\n'), sum = bytes.rfind("crc32c ");
  if (body == bytes.npos || sum == bytes.npos || sum <= body) return;
  const uint32_t crc = crc32c(bytes.data() + body + 1, sum - body - 1);
  bytes.replace(sum + 7, bytes.npos, hex(big_endian(crc, 4)) + '\n');
}

}  // namespace halftape::fuzz
