// A picture as PNG (RFC 2083): bytes, deflated.
#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace halftape {

/// height x width pixels of 1 (grey), 3 (red, green, blue) or 4 (and alpha) bytes, row by row.
std::string png(std::span<const uint8_t> pixels, uint32_t height, uint32_t width,
                uint32_t channels);

}  // namespace halftape
