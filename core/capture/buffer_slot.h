// A part of a larger array that is lent to one holder at a time: flat storage keeps a slot for each
// gradient, so that the gradients of every step lie side by side (optim/state/flat_storage.h).
#pragma once
#include <mutex>

#include "halftape/core/array.h"

namespace halftape {

class BufferSlot : public RefCounted {
 public:
  /// Room for an array of this shape in `all`, 1-D and contiguous, from element `offset` on.
  BufferSlot(const Array& all, int64_t offset, const Shape& shape);
  ~BufferSlot();
  /// The slot's bytes as an array of the slot's shape, with a version of its own; unique() while
  /// nobody copies it. Undefined unless free(). A step that is being captured may lend a slot again
  /// and again, but the slot then belongs to the Graph for as long as the Graph lives. Thread-safe.
  Array lend();
  /// True if nobody holds the slot's bytes.
  bool free() const { return array_.buffer()->use_count() == 1; }
  /// True if `a` is the array that lend() gave.
  bool holds(const Array& a) const;
  const Shape& shape() const { return array_.shape(); }
  Dtype dtype() const { return array_.dtype(); }
  const BufferPtr& buffer() const { return array_.buffer(); }

 private:
  std::mutex mutex_;
  Array array_;  // this handle does not count: Buffer::keep()
};

}  // namespace halftape
