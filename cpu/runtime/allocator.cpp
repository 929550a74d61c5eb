#include "halftape/cpu/runtime/allocator.h"

#include <array>
#include <atomic>
#include <bit>
#include <mutex>
#include <utility>
#include <vector>

#include "halftape/core/machine/build_flags.h"
#include "halftape/core/machine/os.h"
#include "halftape/core/machine/per_thread.h"
#include "halftape/core/memory_stats.h"

namespace halftape::cpu {
namespace {

constexpr size_t kAlignment = 64;

/// Sizes are rounded up to one of four steps per power of two.
size_t round_up(size_t bytes) {
  if (bytes <= kAlignment) return kAlignment;
  const size_t step = std::max(kAlignment, std::bit_floor(bytes - 1) / 4);
  return (bytes + step - 1) / step * step;
}

/// The number of a size that round_up() makes: by its power of two, and by the step within it.
constexpr size_t bin_of(size_t size) {
  const int top = std::bit_width(size - 1);  // two bits below the leading one
  const size_t quarter = size <= 4 * kAlignment ? size / kAlignment : ((size - 1) >> (top - 3)) & 3;
  return static_cast<size_t>(top) * 8 + quarter;
}

/// Free blocks by size, up to a limit of bytes in all. When the limit is reached, all of them are
/// released, so that blocks of sizes which nobody asks for any more do not stay.
class Bins {
 public:
  explicit Bins(size_t limit) : limit_(limit) {}
  Bins(const Bins&) = delete;
  Bins& operator=(const Bins&) = delete;
  ~Bins() { clear(); }
  void* take(size_t size) {
    auto& blocks = bins_[bin_of(size)];
    if (blocks.empty()) return nullptr;
    void* p = blocks.back();
    blocks.pop_back();
    held_ -= size;
    return p;
  }
  bool keep(void* p, size_t size) noexcept {
    if (size > limit_) return false;
    if (held_ + size > limit_) clear();
    try {
      bins_[bin_of(size)].push_back(p);
    } catch (...) {
      return false;
    }
    held_ += size;
    return true;
  }
  void clear() noexcept {
    for (auto& blocks : bins_) {
      for (void* p : blocks) os::aligned_free(p);
      blocks.clear();
    }
    held_ = 0;
  }

 private:
  std::array<std::vector<void*>, 512> bins_;
  size_t limit_, held_ = 0;
};

/// The large blocks of all threads.
struct SharedCache {
  std::mutex mutex;
  Bins bins{size_t{1} << 30};
};
SharedCache& shared() {
  static auto* cache = new SharedCache;  // NOLINT: outlives every static tensor
  return *cache;
}

/// The bytes that arrays hold, and the most there were.
std::atomic<int64_t> allocated{0}, peak{0};

void count(int64_t bytes) noexcept {
  const int64_t now = allocated.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t most = peak.load(std::memory_order_relaxed);
  while (most < now && !peak.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
}

/// The small blocks that a thread keeps for itself, so that taking one needs no lock.
struct ThreadCache : Bins {
  static constexpr size_t kLargestKept = 32768;
  ThreadCache() : Bins(size_t{1} << 20) {}
  ThreadCache(const ThreadCache&) = delete;
  ThreadCache& operator=(const ThreadCache&) = delete;
  ~ThreadCache() { tell(); }
  /// Tells of small blocks only now and then: an atomic addition for each costs more than the rest.
  void count_small(int64_t bytes) noexcept {
    untold_ += bytes;
    if (static_cast<uint64_t>(untold_ + kUntold) > 2 * kUntold) [[unlikely]]
      tell();
  }
  void tell() noexcept { count(std::exchange(untold_, 0)); }

 private:
  static constexpr int64_t kUntold = 65536;
  int64_t untold_ = 0;
};

/// The calling thread's cache for blocks of this size, null where there is none.
ThreadCache* own_cache(size_t size) {
  return size <= ThreadCache::kLargestKept ? per_thread<ThreadCache>() : nullptr;
}

void* take_kept(size_t size, ThreadCache* own) {
  if (kAddressSanitizer) return nullptr;
  if (own) return own->take(size);
  const std::lock_guard lock(shared().mutex);
  return shared().bins.take(size);
}
bool keep(void* block, size_t size, ThreadCache* own) noexcept {
  if (kAddressSanitizer) return false;
  if (own) return own->keep(block, size);
  const std::lock_guard lock(shared().mutex);
  return shared().bins.keep(block, size);
}

void count_block(int64_t bytes, ThreadCache* own) noexcept {
  own ? own->count_small(bytes) : count(bytes);
}

void give_back(void* block, size_t size, void*) noexcept {
  ThreadCache* own = own_cache(size);
  count_block(-static_cast<int64_t>(size), own);
  if (!keep(block, size, own)) os::aligned_free(block);
}

void* take_uncounted(size_t size, ThreadCache* own) {
  if (void* p = take_kept(size, own)) return p;
  if (void* p = os::aligned_alloc(kAlignment, size)) return p;
  {
    const std::lock_guard lock(shared().mutex);
    shared().bins.clear();
  }
  return os::aligned_alloc(kAlignment, size);
}

void* take(size_t size) {
  ThreadCache* own = own_cache(size);
  void* block = take_uncounted(size, own);
  if (block) count_block(static_cast<int64_t>(size), own);
  return block;
}

}  // namespace

int64_t memory_allocated() {
  if (ThreadCache* own = own_cache(0)) own->tell();
  return allocated.load(std::memory_order_relaxed);
}
int64_t max_memory_allocated() {
  memory_allocated();
  return peak.load(std::memory_order_relaxed);
}
void reset_peak_memory_stats() { peak.store(memory_allocated(), std::memory_order_relaxed); }

BufferPtr allocate(size_t bytes) {
  // Small ones carry their head; large ones would round up past the power of two they often are.
  const bool small = bytes <= ThreadCache::kLargestKept - Buffer::kHead;
  const size_t size = small                    ? round_up(bytes + Buffer::kHead)
                      : bytes <= kBeyondMemory ? round_up(bytes)
                                               : 0;
  void* block = size > 0 ? take(size) : nullptr;
  if (!block) out_of_memory(bytes);
  if (small) return Buffer::in_block(block, size - Buffer::kHead, Device(kCPU), &give_back);
  try {
    return make_ref<Buffer>(block, size, Device(kCPU), &give_back);
  } catch (const std::bad_alloc&) {
    count_block(-static_cast<int64_t>(size), nullptr);
    os::aligned_free(block);  // to the system: the error needs memory, too
    out_of_memory(bytes);
  }
}

}  // namespace halftape::cpu
