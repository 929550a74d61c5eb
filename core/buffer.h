// Reference-counted bytes with a version, which every in-place write raises, so that stale saved
// tensors are noticed. A part of a buffer may be a buffer of its own.
#pragma once
#include <algorithm>
#include <cstddef>
#include <new>
#include <string>
#include <vector>

#include "halftape/core/check.h"
#include "halftape/core/device.h"
#include "halftape/core/machine/ref.h"

namespace halftape {

class Buffer;
void dispose(Buffer*) noexcept;

/// Bytes on a device, given back to where they came from when the last handle goes.
class Buffer : public RefCounted {
 public:
  /// `give_back(bytes, size, context)` is called once; it must not throw.
  using GiveBack = void (*)(void* bytes, size_t size, void* context) noexcept;
  Buffer(void* bytes, size_t size, Device device, GiveBack give_back, void* context = nullptr,
         bool pinned = false);
  /// A Buffer at the head of its own block of kHead + size bytes, which `give_back` receives.
  static Ref<Buffer> in_block(void* block, size_t size, Device device, GiveBack give_back);
  static constexpr size_t kHead = 64;  // keeps the bytes aligned as the block is
  /// `size` bytes of `whole` from byte `at` on; the part keeps `whole` alive. A part has its own
  /// handles and version: a write to one part raises no other part's version. A write to the whole
  /// raises that of every part, and a write to a part that of the whole. Throws when `whole` is
  /// itself a part. The first part must be made before another thread sees `whole`.
  static Ref<Buffer> part_of(const Ref<Buffer>& whole, size_t at, size_t size);
  /// The buffer that this is a part of, or null.
  Buffer* whole() const { return has(kPart) ? static_cast<Buffer*>(context_) : nullptr; }

  void* bytes() const { return bytes_; }
  size_t size() const { return size_; }
  Device device() const { return device_; }
  void* context() const { return has(kPart) ? nullptr : context_; }
  /// True for host memory that a GPU reads and writes while the host does something else.
  bool pinned() const { return pinned_; }
  /// True if the user was given a plain pointer into the bytes: a write through it raises no
  /// version.
  bool exposed() const {
    return has(kExposed | kPartExposed) || (has(kPart) && whole()->has(kExposed));
  }
  void expose() {
    if (has(kExposed)) return;  // as at every access but the first
    set(kExposed);
    if (has(kPart)) whole()->set(kPartExposed);
  }
  /// Counts the graphs (core/capture/graph.h) whose replays use the buffer.
  void hold_for_graph() { graphs_.fetch_add(1, std::memory_order_relaxed); }
  void release_from_graph() { graphs_.fetch_sub(1, std::memory_order_relaxed); }
  bool graphs_hold() const { return graphs_.load(std::memory_order_relaxed) != 0; }
  /// While on, unique() does not count one handle, which is a BufferSlot's.
  void keep(bool on) { on ? set(kKept) : clear(kKept); }
  /// From here on unique() does not count one handle, which is that of a call that will write the
  /// buffer (core/capture/peephole.h). False if there is one already.
  bool hold_for_call() { return !(flags_.fetch_or(kCalled, std::memory_order_relaxed) & kCalled); }
  void release_from_call() { clear(kCalled); }
  /// True if there are only the caller's own handles, besides a kept one and a call's.
  bool unique(int64_t own_handles = 1) const { return use_count() == own_handles + uncounted(); }
  /// True if there is one handle, besides a kept one, a call's and those of graphs.
  bool only_graphs_hold_besides() const {
    return use_count() == 1 + uncounted() + graphs_.load(std::memory_order_relaxed);
  }
  uint64_t version() const {
    const uint64_t count = version_.load(std::memory_order_relaxed);
    return has(kPart | kWhole) ? joined_version(count) : count;
  }
  void bump_version() {
    if (has(kPart | kWhole)) [[unlikely]]
      bump_joined();
    else
      version_.fetch_add(1, std::memory_order_relaxed);
  }

  /// Buffers and bytes alive in this process, for leak tests and out-of-memory messages.
  static int64_t live_count();
  static int64_t live_bytes();

 private:
  friend void dispose(Buffer*) noexcept;
  ~Buffer();
  enum Flag : uint8_t {
    kPart = 1,
    kWhole = 2,
    kExposed = 4,
    kPartExposed = 8,
    kKept = 16,
    kCalled = 32
  };
  bool has(int flags) const { return (flags_.load(std::memory_order_relaxed) & flags) != 0; }
  void set(Flag flag) { flags_.fetch_or(flag, std::memory_order_relaxed); }
  void clear(Flag flag) {
    flags_.fetch_and(static_cast<uint8_t>(~flag), std::memory_order_relaxed);
  }
  int uncounted() const { return has(kKept) + has(kCalled); }
  uint64_t joined_version(uint64_t count) const;
  void bump_joined();

  // The version of a buffer with parts counts its own writes from this bit on, and below it those
  // to its parts.
  static constexpr int kOwnWrites = 40;
  void* bytes_;
  size_t size_;
  Device device_;
  bool pinned_;
  std::atomic<uint8_t> flags_{0};
  std::atomic<int16_t> graphs_{0};
  GiveBack give_back_;
  void* context_;  // a part's: a handle of the whole buffer
  std::atomic<uint64_t> version_{0};
};

using BufferPtr = Ref<Buffer>;

/// Bytes that no machine has: refused without asking for them.
inline constexpr size_t kBeyondMemory = size_t{1} << (sizeof(size_t) > 4 ? 46 : 31);
/// Throws OutOfMemoryError: "out of memory: 64 bytes asked for on cpu, 12 bytes live in 3 buffers",
/// with the name of the op before it.
[[noreturn]] void out_of_memory(uint64_t bytes, Device device = kCPU);

/// Bytes of n elements; the largest number where that overflows, which no allocation gives.
template <class T>
uint64_t bytes_of(uint64_t n) {
  uint64_t bytes = 0;
  return __builtin_mul_overflow(n, uint64_t{sizeof(T)}, &bytes) ? UINT64_MAX : bytes;
}

/// make(), which asks the standard library for `bytes` on the host. Throws OutOfMemoryError where
/// std::bad_alloc would not say how much was asked for.
template <class F>
auto on_host(uint64_t bytes, const F& make) {
  if (bytes > kBeyondMemory) out_of_memory(bytes);
  try {
    return make();
  } catch (const std::bad_alloc&) {
    out_of_memory(bytes);
  }
}
/// n equal elements, as by on_host().
template <class T>
std::vector<T> host_vector(int64_t n, const T& value = T()) {
  HALFTAPE_CHECK(n >= 0, "a list of ", n, " elements");
  return on_host(bytes_of<T>(static_cast<uint64_t>(n)),
                 [&] { return std::vector<T>(static_cast<size_t>(n), value); });
}
/// Room for n elements, as by on_host().
template <class List>
List host_room(uint64_t n) {
  return on_host(bytes_of<typename List::value_type>(n), [&] {
    List list;
    list.reserve(n);
    return list;
  });
}
/// Room for that many more elements, as by on_host(). Doubles it, as push_back() would.
template <class List>
void host_grow(List& list, size_t more) {
  if (more <= list.capacity() - list.size()) return;
  const size_t n = std::max(list.size() + more, 2 * list.capacity());
  on_host(bytes_of<typename List::value_type>(n), [&] { list.reserve(n); });
}
/// n characters 0, as by on_host().
inline std::string host_string(uint64_t n) {
  return on_host(n, [&] { return std::string(n, '\0'); });
}

}  // namespace halftape
