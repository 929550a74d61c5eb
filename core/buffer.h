// Reference-counted bytes with a version: every in-place write raises it, so that stale saved
// tensors are noticed.
#pragma once
#include <cstddef>

#include "halftape/core/device.h"
#include "halftape/core/ref.h"

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

  void* bytes() const { return bytes_; }
  size_t size() const { return size_; }
  Device device() const { return device_; }
  void* context() const { return context_; }
  /// Host memory that a GPU reads and writes by itself, while the host does something else.
  bool pinned() const { return pinned_; }
  /// A plain pointer into the bytes was given to the user: they may be written at any time, and no
  /// version tells.
  bool exposed() const { return exposed_.load(std::memory_order_relaxed); }
  void expose() { exposed_.store(true, std::memory_order_relaxed); }
  /// Graphs (core/graph.h) that hold this for what they replay.
  void hold_for_graph() { graphs_.fetch_add(1, std::memory_order_relaxed); }
  void release_from_graph() { graphs_.fetch_sub(1, std::memory_order_relaxed); }
  /// One handle to it and no other, but for graphs'.
  bool only_graphs_hold_besides() const {
    return use_count() == 1 + graphs_.load(std::memory_order_relaxed);
  }
  uint64_t version() const { return version_.load(std::memory_order_relaxed); }
  void bump_version() { version_.fetch_add(1, std::memory_order_relaxed); }

  /// Buffers and bytes alive in this process, for leak tests and out-of-memory messages.
  static int64_t live_count();
  static int64_t live_bytes();

 private:
  friend void dispose(Buffer*) noexcept;
  ~Buffer();
  void* bytes_;
  size_t size_;
  Device device_;
  bool pinned_;
  std::atomic<bool> exposed_{false};
  std::atomic<int16_t> graphs_{0};
  GiveBack give_back_;
  void* context_;
  std::atomic<uint64_t> version_{0};
};

using BufferPtr = Ref<Buffer>;

}  // namespace halftape
