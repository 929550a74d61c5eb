// The records of an event file: a length, the masked CRC-32C of its eight bytes, an event, and the
// masked CRC-32C of that.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "halftape/io/file/crc.h"

namespace halftape::testing {

struct EventFile {
  std::vector<std::string> events;  // up to the first record that is damaged
  bool whole = true;                // none is
};

inline EventFile read_events(std::string_view bytes) {
  const auto number = [&](size_t at, auto value) {
    std::memcpy(&value, bytes.data() + at, sizeof(value));
    return value;
  };
  const auto has_sum = [&](size_t at, size_t n) {  // behind n bytes
    const uint32_t crc = crc32c(bytes.data() + at, n);
    return number(at + n, uint32_t{}) == ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
  };
  EventFile file;
  for (size_t at = 0; at < bytes.size();) {
    const size_t left = bytes.size() - at;
    const uint64_t n = left < 16 ? 0 : number(at, uint64_t{});
    file.whole = left >= 16 && has_sum(at, 8) && n <= left - 16 && has_sum(at + 12, n);
    if (!file.whole) return file;
    file.events.emplace_back(bytes.substr(at + 12, n));
    at += n + 16;
  }
  return file;
}

}  // namespace halftape::testing
