// The CPU's memory: 64-byte aligned blocks by size class, kept for reuse. Fresh pages cost several
// times the work that is done in them.
#pragma once
#include "halftape/core/buffer.h"

namespace halftape::cpu {

/// A block of at least `bytes`. Throws OutOfMemoryError.
BufferPtr allocate(size_t bytes);

/// n elements for the time of a call, uninitialised. Throws OutOfMemoryError.
template <class T>
class Scratch {
 public:
  explicit Scratch(int64_t n) : buffer_(n > 0 ? allocate(bytes_of<T>(n)) : BufferPtr()) {}
  /// Null for no elements.
  T* data() const { return buffer_ ? static_cast<T*>(buffer_->bytes()) : nullptr; }

 private:
  BufferPtr buffer_;
};

}  // namespace halftape::cpu
