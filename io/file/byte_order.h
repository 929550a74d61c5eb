// Numbers as bytes in a given order, independent of the machine's, and bytes as digits.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace halftape {

/// The number in up to eight bytes, the lowest first.
inline uint64_t from_little_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}
/// The number in up to eight bytes, the highest first.
inline uint64_t from_big_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (const char c : bytes) value = value << 8 | static_cast<uint8_t>(c);
  return value;
}
/// The n lowest bytes of a number, the lowest first.
inline std::string little_endian(uint64_t value, size_t n) {
  std::string bytes;
  for (; n > 0; --n, value >>= 8) bytes += static_cast<char>(value);
  return bytes;
}
/// The n lowest bytes of a number, the highest first.
inline std::string big_endian(uint64_t value, size_t n) {
  std::string bytes;
  while (n-- > 0) bytes += static_cast<char>(value >> 8 * n);
  return bytes;
}
/// Two hexadecimal digits for each byte.
inline std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes)
    for (const int shift : {4, 0})
      text += "0123456789abcdef"[static_cast<uint8_t>(c) >> shift & 15];
  return text;
}

}  // namespace halftape
