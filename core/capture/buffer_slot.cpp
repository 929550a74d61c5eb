#include "halftape/core/capture/buffer_slot.h"

#include "halftape/core/capture/capture.h"

namespace halftape {
namespace {

Array part_of(const Array& all, int64_t offset, const Shape& shape) {
  const size_t at = static_cast<size_t>(all.offset() + offset) * element_size(all.dtype());
  const BufferPtr part = Buffer::part_of(all.buffer(), at, byte_count(shape, all.dtype()));
  return {part, shape, contiguous_strides(shape), 0, all.dtype()};
}

}  // namespace

BufferSlot::BufferSlot(const Array& all, int64_t offset, const Shape& shape)
    : array_(part_of(all, offset, shape)) {
  array_.buffer()->keep(true);
}
BufferSlot::~BufferSlot() { array_.buffer()->keep(false); }

Array BufferSlot::lend() {
  const std::lock_guard lock(mutex_);
  if (!free()) return {};  // a free slot stays free: only lend() gives new handles
  lent_to_step(*this);
  return array_;
}

bool BufferSlot::holds(const Array& a) const {
  return a.defined() && a.buffer() == array_.buffer() && a.dtype() == dtype() &&
         a.shape() == shape() && a.offset() == 0 && a.contiguous();
}

}  // namespace halftape
