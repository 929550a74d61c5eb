#include "halftape/core/machine/flush_denormal.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace halftape {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kFlush = 1u << 15 | 1u << 6;  // MXCSR: results (FTZ) and operands (DAZ)
uint64_t control() { return _mm_getcsr(); }
void set_control(uint64_t word) { _mm_setcsr(static_cast<uint32_t>(word)); }
#elif defined(__aarch64__)
constexpr uint32_t kFlush = 1u << 24;  // FPCR.FZ: both, not of float16 (FZ16)
uint64_t control() {
  uint64_t word;
  asm volatile("mrs %0, fpcr" : "=r"(word));
  return word;
}
void set_control(uint64_t word) { asm volatile("msr fpcr, %0" : : "r"(word) : "memory"); }
#else
constexpr uint32_t kFlush = 0;
uint64_t control() { return 0; }
void set_control(uint64_t) {}
#endif

void set_flush_bits(uint32_t bits) { set_control((control() & ~uint64_t{kFlush}) | bits); }

}  // namespace

bool set_flush_denormal(bool on) {
  if (kFlush != 0) set_flush_bits(on ? kFlush : 0);
  return kFlush != 0;
}

namespace detail {

uint32_t flush_bits() { return static_cast<uint32_t>(control()) & kFlush; }

// Most threads have the bits already, and writing the register waits for all that computes.
FlushAs::FlushAs(uint32_t bits) : before_(flush_bits()) {
  if (bits != before_) set_flush_bits(bits);
}
FlushAs::~FlushAs() {
  if (flush_bits() != before_) set_flush_bits(before_);
}

}  // namespace detail
}  // namespace halftape
