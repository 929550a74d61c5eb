// Compressed bytes (RFC 1951), for zip and PNG.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace halftape {

/// The most bytes that one byte of deflate data can give: zlib.net/zlib_tech.html.
inline constexpr uint64_t kMaxDeflateRatio = 1032;

/// Raw deflate, without header and check sum. In a build without zlib the bytes are stored.
std::string deflated(std::string_view bytes);
/// Fills `out` from raw deflate data. False when the data are damaged, end too early, give other
/// than n bytes or go on after them; and in a build without zlib (see can_inflate()).
bool inflate_into(void* out, size_t n, std::string_view data);
bool can_inflate();

}  // namespace halftape
