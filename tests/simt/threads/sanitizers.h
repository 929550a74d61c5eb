// Which sanitizer this is built with, and the few of its functions the rig calls.
#pragma once
#include <cstddef>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#define SIMT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIMT_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define SIMT_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SIMT_TSAN 1
#endif
#endif

#ifdef SIMT_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef SIMT_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace simt {

/// From now on AddressSanitizer reports whoever touches these bytes. Nothing without it.
inline void forbid(const void* begin, std::size_t size) {
#ifdef SIMT_ASAN
  __asan_poison_memory_region(begin, size);
#else
  (void)begin, (void)size;
#endif
}
inline void allow(const void* begin, std::size_t size) {
#ifdef SIMT_ASAN
  __asan_unpoison_memory_region(begin, size);
#else
  (void)begin, (void)size;
#endif
}

/// std::memset for thread_local memory. ThreadSanitizer would look at each byte, which took a third
/// of its time on the rig, for memory that no other thread can have.
inline void fill_own(void* begin, unsigned char byte, std::size_t size) {
#if defined(SIMT_TSAN) && defined(__x86_64__)
  asm volatile("rep stosb" : "+D"(begin), "+c"(size) : "a"(byte) : "memory");
#else
  std::memset(begin, byte, size);
#endif
}

}  // namespace simt
