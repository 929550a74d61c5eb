// Pictures as PNG (RFC 2083): bytes, deflated.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace halftape {

/// height x width pixels of 1 (grey), 3 (red, green, blue) or 4 (and alpha) bytes, row by row.
std::string png(std::span<const uint8_t> pixels, uint32_t height, uint32_t width,
                uint32_t channels);

/// A decoded picture: height x width pixels of `channels` bytes, row by row.
struct Pixels {
  uint32_t height = 0, width = 0, channels = 0;
  std::vector<uint8_t> bytes;
};
/// A PNG of 8 bits a channel, or of 8-bit numbers in a palette, not interlaced: 1 channel (grey), 2
/// (and alpha), 3 (red, green, blue) or 4 (and alpha). Colour profiles, gamma and the transparency
/// of palettes are ignored. Throws FileError, "png: name: …", for anything else, for damage, beyond
/// set_unpack_limit(), and in a build without zlib.
Pixels read_png(std::string_view file, const std::string& name);

}  // namespace halftape
