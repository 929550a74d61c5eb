#include "halftape/cpu/allocator.h"

#include <array>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "halftape/core/check.h"

#if defined(__SANITIZE_ADDRESS__)
#define HALFTAPE_CACHES_MEMORY 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HALFTAPE_CACHES_MEMORY 0
#endif
#endif
#ifndef HALFTAPE_CACHES_MEMORY
#define HALFTAPE_CACHES_MEMORY \
  1  // under AddressSanitizer every block is its own, so that misuse is seen
#endif

namespace halftape::cpu {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kLargest = size_t{1} << 46;  // beyond any machine: refused before malloc is asked
constexpr size_t kCacheLimit = size_t{1} << 30;

/// Sizes are rounded up to one of four steps per power of two.
size_t round_up(size_t bytes) {
  if (bytes <= kAlignment) return kAlignment;
  const size_t step = std::max(kAlignment, std::bit_floor(bytes - 1) / 4);
  return (bytes + step - 1) / step * step;
}

class Cache {
 public:
  void* take(size_t size) {
    const std::lock_guard lock(mutex_);
    auto& blocks = bin(size);
    if (blocks.empty()) return nullptr;
    void* p = blocks.back();
    blocks.pop_back();
    held_ -= size;
    return p;
  }
  bool keep(void* p, size_t size) noexcept {
    const std::lock_guard lock(mutex_);
    if (held_ + size > kCacheLimit) return false;
    try {
      bin(size).push_back(p);
    } catch (...) {
      return false;
    }
    held_ += size;
    return true;
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    for (auto& blocks : bins_) {
      for (void* p : blocks) std::free(p);
      blocks.clear();
    }
    held_ = 0;
  }

 private:
  std::vector<void*>& bin(size_t size) {
    // Which of the four steps of its power of two: two bits below the leading one.
    const int top = std::bit_width(size - 1);
    const size_t quarter =
        size <= 4 * kAlignment ? size / kAlignment : ((size - 1) >> (top - 3)) & 3;
    return bins_[static_cast<size_t>(top) * 8 + quarter];
  }
  std::mutex mutex_;
  std::array<std::vector<void*>, 64 * 8> bins_;
  size_t held_ = 0;
};

Cache& cache() {
  static Cache* instance = new Cache;  // NOLINT: outlives every static tensor
  return *instance;
}

void give_back(void* bytes, size_t size, void*) noexcept {
  if (!HALFTAPE_CACHES_MEMORY || !cache().keep(bytes, size)) std::free(bytes);
}

}  // namespace

BufferPtr allocate(size_t bytes) {
  const size_t size = bytes <= kLargest ? round_up(bytes) : bytes;
  void* p = nullptr;
  if (bytes <= kLargest) {
    if (HALFTAPE_CACHES_MEMORY) p = cache().take(size);
    if (!p) p = std::aligned_alloc(kAlignment, size);
    if (!p) {
      cache().clear();
      p = std::aligned_alloc(kAlignment, size);
    }
  }
  if (!p) {
    std::ostringstream text;
    text << "out of memory: " << bytes << " bytes asked for on cpu, " << Buffer::live_bytes()
         << " bytes live in " << Buffer::live_count() << " buffers";
    throw OutOfMemoryError(text.str());
  }
  return make_ref<Buffer>(p, size, Device(kCPU), &give_back);
}

}  // namespace halftape::cpu
