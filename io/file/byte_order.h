// Numbers as bytes in a given order, independent of the machine's, and as text.
#pragma once
#include <charconv>
#include <cstdint>
#include <iterator>
#include <optional>
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
/// The shortest text that reads back as the same number.
template <class T>
std::string text_of(T number) {
  char digits[32];
  return {digits, std::to_chars(std::begin(digits), std::end(digits), number).ptr};
}
/// The number that the text is; none if it is another text, or out of T's range.
template <class T>
std::optional<T> number_in(std::string_view text) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number)
                                                                  : std::nullopt;
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
