#include "halftape/io/png.h"

#include <string_view>

#include "halftape/core/check.h"
#include "halftape/io/crc.h"
#include "halftape/io/deflate.h"

namespace halftape {
namespace {

std::string big_endian(uint32_t n) {
  return {static_cast<char>(n >> 24), static_cast<char>(n >> 16), static_cast<char>(n >> 8),
          static_cast<char>(n)};
}

std::string chunk(const std::string& type, const std::string& data) {
  const std::string summed = type + data;
  return big_endian(static_cast<uint32_t>(data.size())) + summed +
         big_endian(crc32(summed.data(), summed.size()));
}

/// RFC 1950: deflate data between two bytes that say so and the sum Adler-32.
std::string zlib_stream(std::string_view bytes) {
  uint32_t a = 1, b = 0;
  for (const char c : bytes) {
    a = (a + static_cast<uint8_t>(c)) % 65521;
    b = (b + a) % 65521;
  }
  return "\x78\x01" + deflated(bytes) + big_endian(b << 16 | a);
}

}  // namespace

std::string png(std::span<const uint8_t> pixels, uint32_t height, uint32_t width,
                uint32_t channels) {
  const bool known = channels == 1 || channels == 3 || channels == 4;
  const size_t row = size_t{width} * channels;
  HALFTAPE_CHECK(known && height > 0 && width > 0 && pixels.size() == row * height,
                 "png: ", pixels.size(), " bytes are no picture of ", height, " x ", width,
                 " pixels of ", channels, " channels (1, 3 or 4)");
  std::string rows;
  for (uint32_t y = 0; y < height; ++y) {
    rows += '\0';  // this row is not filtered
    rows.append(reinterpret_cast<const char*>(&pixels[y * row]), row);
  }
  const char color = channels == 1 ? 0 : channels == 3 ? 2 : 6;
  return "\x89PNG\r\n\x1a\n" +
         chunk("IHDR",
               big_endian(width) + big_endian(height) + '\x08' + color + '\0' + '\0' + '\0') +
         chunk("IDAT", zlib_stream(rows)) + chunk("IEND", "");
}

}  // namespace halftape
