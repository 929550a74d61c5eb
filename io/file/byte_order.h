// Numbers as bytes in a given order, independent of the machine's, and as text.
#pragma once
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <version>

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
/// std::from_chars of a whole text.
template <class T>
std::from_chars_result read_number(std::string_view text, T& number) {
#if !defined(__cpp_lib_to_chars)
  // A standard library that reads and writes integers alone (libc++). The decimal point is the C
  // library's.
  if constexpr (std::is_floating_point_v<T>) {
    const std::string copy(text);
    if (text.empty() || std::string_view("-.0123456789iInN").find(text[0]) == text.npos ||
        text.find_first_of("xX") != text.npos)
      return {text.data(), std::errc::invalid_argument};
    char* end = nullptr;
    errno = 0;
    const double value = std::strtod(copy.c_str(), &end);
    const bool beyond = errno == ERANGE && (value == 0 || std::isinf(value));
    const auto* const stop = text.data() + (end - copy.c_str());
    if (stop == text.data()) return {stop, std::errc::invalid_argument};
    if (!beyond) number = static_cast<T>(value);
    return {stop, beyond ? std::errc::result_out_of_range : std::errc()};
  } else
#endif
    return std::from_chars(text.data(), text.data() + text.size(), number);
}
/// The shortest text that reads back as the same number.
template <class T>
std::string text_of(T number) {
  char digits[32];
#if !defined(__cpp_lib_to_chars)
  if constexpr (std::is_floating_point_v<T>) {
    for (int n = 1;; ++n) {
      std::snprintf(digits, sizeof digits, "%.*g", n, static_cast<double>(number));
      if (n >= 17 || std::strtod(digits, nullptr) == number) return digits;
    }
  } else
#endif
    return {digits, std::to_chars(std::begin(digits), std::end(digits), number).ptr};
}
/// The number that the text is; none if it is another text, or out of T's range.
template <class T>
std::optional<T> number_in(std::string_view text) {
  T number{};
  const auto [end, error] = read_number(text, number);
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
