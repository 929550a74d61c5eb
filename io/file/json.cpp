#include "halftape/io/file/json.h"

#include <cstdint>

#include "halftape/core/check.h"
#include "halftape/io/file/byte_order.h"

namespace halftape {

size_t utf8_length(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = at(0);
  if (first < 0x80) return 1;
  const size_t n = first >= 0xc2 && first < 0xe0   ? 2
                   : first >= 0xe0 && first < 0xf0 ? 3
                   : first >= 0xf0 && first < 0xf5 ? 4
                                                   : 0;
  if (n == 0 || text.size() < n) return 0;
  for (size_t i = 1; i < n; ++i)
    if ((at(i) & 0xc0) != 0x80) return 0;
  // The second byte shows overlong forms, surrogates and code points above U+10FFFF.
  if ((first == 0xe0 && at(1) < 0xa0) || (first == 0xed && at(1) > 0x9f) ||
      (first == 0xf0 && at(1) < 0x90) || (first == 0xf4 && at(1) > 0x8f))
    return 0;
  return n;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t n = utf8_length(text);
    if (n == 0) return false;
    text.remove_prefix(n);
  }
  return true;
}

std::string json_quoted(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const char c = text[0];
    const size_t n = utf8_length(text);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<uint8_t>(c) < 0x20) {
      out += "\\u00" + hex(text.substr(0, 1));
    } else if (n == 0) {
      out += "\xEF\xBF\xBD";
    } else {
      out += text.substr(0, n);
    }
    text.remove_prefix(n == 0 ? 1 : n);
  }
  return out + '"';
}

std::string json_quoted_exactly(std::string_view text, std::string_view what) {
  HALFTAPE_CHECK(is_utf8(text), what, " ", json_quoted(text),
                 " is not UTF-8, as names in JSON have to be");
  return json_quoted(text);
}

}  // namespace halftape
