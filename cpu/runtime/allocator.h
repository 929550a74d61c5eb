// The CPU's memory: 64-byte aligned blocks by size class, kept for reuse. Fresh pages cost several
// times the work that is done in them.
#pragma once
#include "halftape/core/buffer.h"

namespace halftape::cpu {

/// A block of at least `bytes`. Throws OutOfMemoryError.
BufferPtr allocate(size_t bytes);

/// Memory of a call, given back at its end. Uninitialised.
class Scratch {
 public:
  explicit Scratch(size_t bytes) : buffer_(bytes > 0 ? allocate(bytes) : BufferPtr()) {}
  /// Null where none was asked for.
  template <class T>
  T* as() const {
    return buffer_ ? static_cast<T*>(buffer_->bytes()) : nullptr;
  }

 private:
  BufferPtr buffer_;
};

}  // namespace halftape::cpu
