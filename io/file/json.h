// The parts of JSON that the formats here need: quoting, and UTF-8.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace halftape {

/// Bytes of the well-formed UTF-8 character (RFC 3629: no overlong forms, no surrogates) at the
/// start of a text that is not empty; 0 if there is none.
size_t utf8_length(std::string_view text);
/// True if the text consists of such characters.
bool is_utf8(std::string_view text);
/// A JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD.
std::string json_quoted(std::string_view text);
/// The same for text that must survive the round trip: throws Error, which names `what`, unless the
/// text is UTF-8.
std::string json_quoted_exactly(std::string_view text, std::string_view what);

}  // namespace halftape
