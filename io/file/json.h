// The parts of JSON that the formats here need: quoting, and UTF-8.
#pragma once
#include <string>
#include <string_view>

namespace halftape {

/// Well-formed UTF-8 (RFC 3629: no overlong forms, no surrogates).
bool is_utf8(std::string_view text);
/// A JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD.
std::string json_quoted(std::string_view text);
/// The same for text that must survive the round trip: throws Error, which names `what`, unless the
/// text is UTF-8.
std::string json_quoted_exactly(std::string_view text, std::string_view what);

}  // namespace halftape
