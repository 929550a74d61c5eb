// Check sums: CRC-32C of safetensors files saved here and of TensorBoard's records, CRC-32 of zip
// and PNG.
#pragma once
#include <cstddef>
#include <cstdint>

namespace halftape {

// `before`: the CRC of the bytes before these; 0 for the first.

/// Castagnoli's polynomial, RFC 3720, appendix B.4: "123456789" gives e3069283.
uint32_t crc32c(const void* bytes, size_t n, uint32_t before = 0);
/// The CRC of IEEE 802.3: "123456789" gives cbf43926.
uint32_t crc32(const void* bytes, size_t n, uint32_t before = 0);

}  // namespace halftape
