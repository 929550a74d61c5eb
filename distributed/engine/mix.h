// One number out of two: for tags of messages, signatures of calls, and hashes.
#pragma once
#include <cstdint>

namespace halftape::distributed {

/// A number of 64 bits that no other pair (a, b) is likely to have.
constexpr uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t h = a * 0x9e3779b97f4a7c15u + b;  // after splitmix64
  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
  h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
  return h ^ (h >> 31);
}

}  // namespace halftape::distributed
