#include "halftape/core/capture/buffer_slot.h"

#include "halftape/core/capture/capture.h"

namespace halftape {
namespace {

Array part_of(const Array& all, int64_t at, const Shape& shape) {
  const auto bytes = [&](int64_t n) { return static_cast<size_t>(n) * element_size(all.dtype()); };
  const BufferPtr part =
      Buffer::part_of(all.buffer(), bytes(all.offset() + at), bytes(numel(shape)));
  return {part, shape, contiguous_strides(shape), 0, all.dtype()};
}

}  // namespace

Place::Place(const Array& all, int64_t at, const Shape& shape) : array_(part_of(all, at, shape)) {
  array_.buffer()->keep(true);
}

Place::~Place() { array_.buffer()->keep(false); }

Array Place::lend() {
  const std::lock_guard lock(mutex_);
  // Others can but let go meanwhile: new holders come by here.
  if (graphs_ > 0 || array_.buffer()->use_count() != 1) return {};
  lent_to_step(*this);
  return array_;
}

bool Place::free() const {
  const std::lock_guard lock(mutex_);
  return graphs_ == 0 && array_.buffer()->use_count() == 1;
}

bool Place::has(const Array& a) const {
  return a.defined() && a.buffer() == array_.buffer() && a.dtype() == dtype() &&
         a.shape() == shape() && a.offset() == 0 && a.contiguous();
}

void Place::hold_for_graph() {
  const std::lock_guard lock(mutex_);
  ++graphs_;
}
void Place::release_from_graph() {
  const std::lock_guard lock(mutex_);
  --graphs_;
}

}  // namespace halftape
