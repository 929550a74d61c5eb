#include "halftape/cpu/runtime/allocator.h"

#include <algorithm>
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

/// Bytes that the system has given and not got back.
std::atomic<int64_t> reserved{0};

void* fresh(size_t size) {
  void* p = os::aligned_alloc(kAlignment, size);
  if (p) reserved.fetch_add(static_cast<int64_t>(size), std::memory_order_relaxed);
  return p;
}
void release(void* p, size_t size) noexcept {
  os::aligned_free(p);
  reserved.fetch_sub(static_cast<int64_t>(size), std::memory_order_relaxed);
}

/// Free blocks by size, up to a limit of bytes in all. When the limit is reached, all of them are
/// released, so that blocks of sizes which nobody asks for any more do not stay.
class Bins {
 public:
  explicit Bins(size_t limit) : limit_(limit) {}
  Bins(const Bins&) = delete;
  Bins& operator=(const Bins&) = delete;
  ~Bins() { clear(); }
  size_t held() const { return held_; }
  void* take(size_t size) {
    Bin& bin = bins_[bin_of(size)];
    if (bin.blocks.empty()) return nullptr;
    void* p = bin.blocks.back();
    bin.blocks.pop_back();
    bin.idle = std::min(bin.idle, bin.blocks.size());
    held_ -= size;
    return p;
  }
  bool keep(void* p, size_t size) noexcept {
    if (size > limit_) return false;
    if (held_ + size > limit_) clear();
    Bin& bin = bins_[bin_of(size)];
    try {
      bin.blocks.push_back(p);
    } catch (...) {
      return false;
    }
    bin.size = size;
    held_ += size;
    return true;
  }
  /// Releases the blocks that nobody has taken since the last call. True if there were any.
  bool release_idle() noexcept {
    const size_t before = held_;
    for (Bin& bin : bins_) {
      for (size_t i = 0; i < bin.idle; ++i) release(bin.blocks[i], bin.size);
      bin.blocks.erase(bin.blocks.begin(), bin.blocks.begin() + static_cast<int64_t>(bin.idle));
      held_ -= bin.idle * bin.size;
      bin.idle = bin.blocks.size();
    }
    return held_ < before;
  }
  void clear() noexcept {
    for (Bin& bin : bins_) bin.idle = bin.blocks.size();
    release_idle();
  }

 private:
  struct Bin {
    std::vector<void*> blocks;  // the last one kept is the first one taken
    size_t size = 0, idle = 0;  // blocks at the front that have lain there since release_idle()
  };
  std::array<Bin, 512> bins_;
  size_t limit_, held_ = 0;
};

/// The large blocks of all threads. Those that lie idle while many times their bytes are taken go
/// back: a step takes about what it holds at its peak, so that this is many steps, and what is
/// taken from the system again in a program with longer phases is a small part of what it takes.
class SharedCache {
 public:
  void* take(size_t size) {
    const std::lock_guard lock(mutex_);
    most_ = std::max(most_, bins_.held());
    taken_ += size;
    if (taken_ / kTimes > std::max(most_, kLittle)) [[unlikely]]
      trim();
    return bins_.take(size);
  }
  bool keep(void* p, size_t size) noexcept {
    const std::lock_guard lock(mutex_);
    return bins_.keep(p, size);
  }
  void clear() noexcept {
    const std::lock_guard lock(mutex_);
    bins_.clear();
    os::trim_heap();
  }

 private:
  static constexpr size_t kTimes = 16, kLittle = size_t{64} << 20;
  void trim() noexcept {
    if (bins_.release_idle()) os::trim_heap();
    taken_ = most_ = 0;
  }

  std::mutex mutex_;
  Bins bins_{size_t{1} << 30};
  size_t taken_ = 0, most_ = 0;  // since the last trim(): bytes taken, and the most that were held
};
SharedCache& shared() {
  static SharedCache* cache = nullptr;  // outlives every static tensor
  // A forked child may find its lock held by a thread that is not there: it leaves it and what it
  // has, and begins another.
  static const bool made [[maybe_unused]] = [] {
    cache = new SharedCache;  // NOLINT
    os::after_fork_in_child([] { cache = new SharedCache; });
    return true;
  }();
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
  return own ? own->take(size) : shared().take(size);
}
bool keep(void* block, size_t size, ThreadCache* own) noexcept {
  if (kAddressSanitizer) return false;
  return own ? own->keep(block, size) : shared().keep(block, size);
}

void count_block(int64_t bytes, ThreadCache* own) noexcept {
  own ? own->count_small(bytes) : count(bytes);
}

void give_back(void* block, size_t bytes, void*) noexcept {
  const size_t size = round_up(bytes);
  ThreadCache* own = own_cache(size);
  count_block(-static_cast<int64_t>(size), own);
  if (!keep(block, size, own)) release(block, size);
}

void* take_uncounted(size_t size, ThreadCache* own) {
  if (void* p = take_kept(size, own)) return p;
  if (void* p = fresh(size)) return p;
  shared().clear();
  return fresh(size);
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
int64_t memory_reserved() { return reserved.load(std::memory_order_relaxed); }
void empty_cache() {
  if (ThreadCache* own = own_cache(0)) own->clear();
  shared().clear();
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
  if (small) return Buffer::in_block(block, bytes, Device(kCPU), &give_back);
  try {
    return make_ref<Buffer>(block, bytes, Device(kCPU), &give_back);
  } catch (const std::bad_alloc&) {
    count_block(-static_cast<int64_t>(size), nullptr);
    release(block, size);  // to the system: the error needs memory, too
    out_of_memory(bytes);
  }
}

}  // namespace halftape::cpu
