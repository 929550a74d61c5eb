#include "halftape/io/file/crc.h"

#include <array>
#if defined(__x86_64__)
#include <nmmintrin.h>

#include <cstring>
#endif

namespace halftape {
namespace {

/// tables[k][b]: what byte b does to the CRC when k more bytes follow it.
template <uint32_t polynomial>  // its bits reversed
constexpr auto tables_of = [] {
  std::array<std::array<uint32_t, 256>, 8> t{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t sum = b;
    for (int bit = 0; bit < 8; ++bit) sum = sum >> 1 ^ (sum & 1 ? polynomial : 0u);
    t[0][b] = sum;
  }
  for (size_t k = 1; k < 8; ++k)
    for (size_t b = 0; b < 256; ++b) t[k][b] = t[k - 1][b] >> 8 ^ t[0][t[k - 1][b] & 255];
  return t;
}();

template <uint32_t polynomial>
uint32_t crc(const void* bytes, size_t n, uint32_t before) {
  constexpr const auto& tables = tables_of<polynomial>;
  const auto* p = static_cast<const uint8_t*>(bytes);
  uint32_t sum = ~before;
  // Eight bytes at a time: one look-up each, independent of the others.
  for (; n >= 8; n -= 8, p += 8) {
    const uint32_t low =
        sum ^ (uint32_t{p[0]} | uint32_t{p[1]} << 8 | uint32_t{p[2]} << 16 | uint32_t{p[3]} << 24);
    sum = tables[7][low & 255] ^ tables[6][low >> 8 & 255] ^ tables[5][low >> 16 & 255] ^
          tables[4][low >> 24] ^ tables[3][p[4]] ^ tables[2][p[5]] ^ tables[1][p[6]] ^
          tables[0][p[7]];
  }
  for (; n > 0; --n, ++p) sum = sum >> 8 ^ tables[0][(sum ^ *p) & 255];
  return ~sum;
}

#if defined(__x86_64__)
/// The same sum by the machine's instruction, several times as fast: summing would take most of the
/// time of loading a file.
__attribute__((target("sse4.2"))) uint32_t crc32c_by_instruction(const void* bytes, size_t n,
                                                                 uint32_t before) {
  const auto* p = static_cast<const uint8_t*>(bytes);
  uint64_t sum = ~before;
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    sum = _mm_crc32_u64(sum, word);
  }
  auto last = static_cast<uint32_t>(sum);
  for (; n > 0; --n, ++p) last = _mm_crc32_u8(last, *p);
  return ~last;
}
#endif

}  // namespace

uint32_t crc32c(const void* bytes, size_t n, uint32_t before) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return crc32c_by_instruction(bytes, n, before);
#endif
  return crc<0x82f63b78>(bytes, n, before);
}
uint32_t crc32(const void* bytes, size_t n, uint32_t before) {
  return crc<0xedb88320>(bytes, n, before);
}

}  // namespace halftape
