// Subnormal ("denormal") float32 and float64 as 0, on the CPU. Those below the smallest normal
// number, 2^-126 of float32, take some processors a hundred times as long as others.
#pragma once
#include <cstdint>

namespace halftape {

/// Whether operations of the calling thread take subnormal numbers for 0 and give 0 in their place,
/// with their sign; off by default. The library's own threads compute as the thread does for which
/// they work. Returns false, and changes nothing, on machines other than x86-64 and 64-bit Arm.
/// docs/numerics.md says what is given up.
bool set_flush_denormal(bool on);

namespace detail {

/// The bits of the calling thread's control register that flush; 0 on other machines.
uint32_t flush_bits();

/// A thread that works for another one has that one's flush_bits() meanwhile.
class [[nodiscard]] FlushAs {
 public:
  [[nodiscard]] explicit FlushAs(uint32_t bits);
  ~FlushAs();
  FlushAs(const FlushAs&) = delete;
  FlushAs& operator=(const FlushAs&) = delete;

 private:
  uint32_t before_;
};

}  // namespace detail
}  // namespace halftape
