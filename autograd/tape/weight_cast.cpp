#include "halftape/autograd/tape/weight_cast.h"

#include <mutex>
#include <unordered_map>

#include "halftape/autograd/tape/node.h"
#include "halftape/core/capture/capture.h"
#include "halftape/core/contract/backend.h"
#include "halftape/core/contract/queue.h"

namespace halftape::detail {
namespace {

struct LowCopy {
  Array low;  // undefined between take_low_copy() and return_low_copy()
  uint64_t version = 0, low_version = 0;
  int idle = 0;  // updates since a region asked for it
  // The queue of the region that made it. It serves no other one: nobody knows of the copy, and so
  // nobody could wait for it, or keep its memory until another queue has read it.
  void* queue = nullptr;

  bool serves(Device device) const {
    return !queue || queue == current_queue(device) || Capture::active_or_tried();
  }
  bool is_valid(const Tensor& leaf) const {
    return low.defined() && version == leaf.version() && low_version == low.version() &&
           !leaf.array().buffer()->exposed() && !low.buffer()->exposed();
  }
};

/// Null, which is any queue, in the step of a Graph: its trial begins when all work is done, and
/// ends so.
void* queue_of_cast(Device device) {
  return Capture::active_or_tried() ? nullptr : current_queue(device);
}

/// Beside the tensors, because most have no copy. A leaf erases its entry when it dies.
struct Table {
  std::mutex mutex;
  std::unordered_map<const TensorImpl*, LowCopy> copies;

  LowCopy* find(const Tensor& leaf) {
    const auto found = copies.find(leaf.impl());
    return found == copies.end() ? nullptr : &found->second;
  }
  void erase(const Tensor& leaf) { copies.erase(leaf.impl()); }
};
Table& table() {
  static Table* own = new Table;  // NOLINT: outlives every static tensor
  return *own;
}

}  // namespace

Array find_low_copy(const Tensor& leaf, Dtype dtype) {
  const std::lock_guard lock(table().mutex);
  LowCopy* const copy = table().find(leaf);
  if (!copy || !copy->is_valid(leaf) || copy->low.dtype() != dtype || !copy->serves(leaf.device()))
    return {};
  copy->idle = 0;
  return copy->low;
}

Array find_captured_low_copy(const Tensor& leaf, Dtype dtype, Capture& capture) {
  const std::lock_guard lock(table().mutex);
  LowCopy* const copy = table().find(leaf);
  if (!copy || !copy->low.defined() || copy->low.dtype() != dtype ||
      leaf.array().buffer()->exposed())
    return {};
  if (!capture.keeps(copy->low) && !capture.writes(leaf.array()) && !capture.writes(copy->low)) {
    capture.keep(leaf.array(), copy->low, [](const Array& weight, const Array& cast) {
      backend(weight.device()).copy(cast, weight);
    });
    *copy = {copy->low, leaf.version(), copy->low.version(), 0, queue_of_cast(leaf.device())};
  }
  return copy->is_valid(leaf) && capture.keeps(copy->low) ? copy->low : Array();
}

Array low_copy_array(const Tensor& leaf, Dtype dtype) {
  const auto* end = static_cast<const Accumulate*>(leaf.impl()->accumulator.get());
  if (end && end->slots) {
    {
      // An invalid copy must not occupy the slot.
      const std::lock_guard lock(table().mutex);
      if (LowCopy* const copy = table().find(leaf); copy && !copy->is_valid(leaf))
        table().erase(leaf);
    }
    if (Array slot = end->slots->low_copy(dtype); slot.defined()) return slot;
  }
  return empty_like(leaf.array(), dtype);
}

void keep_low_copy(const Tensor& leaf, const Array& low, uint64_t version) {
  if (!is_narrow(low.dtype()) || leaf.array().buffer()->exposed()) return;
  const std::lock_guard lock(table().mutex);
  LowCopy& copy = table().copies[leaf.impl()];
  const bool is_used = copy.is_valid(leaf) && copy.idle == 0;
  if (is_used && (copy.low.dtype() != low.dtype() || !copy.serves(leaf.device()))) return;
  copy = {low, version, low.version(), 0, queue_of_cast(leaf.device())};
  leaf.impl()->low_copied = true;
}

Array take_low_copy(const Tensor& leaf) {
  const std::lock_guard lock(table().mutex);
  LowCopy* const copy = table().find(leaf);
  if (!copy) return {};
  const Capture* capture = Capture::on(leaf.device());
  if (copy->is_valid(leaf) && copy->serves(leaf.device()) &&
      (!capture || capture->keeps(copy->low)) && copy->low.buffer()->only_graphs_hold_besides() &&
      copy->idle++ < kMostIdleUpdates)
    return std::exchange(copy->low, {});
  table().erase(leaf);
  return {};
}

void return_low_copy(const Tensor& leaf, const Array& low) {
  const std::lock_guard lock(table().mutex);
  LowCopy* const copy = table().find(leaf);
  if (!copy || copy->low.defined()) return;
  if (leaf.version() > copy->version + 1) return table().erase(leaf);
  *copy = {low, leaf.version(), low.version(), copy->idle, copy->queue};
  if (Capture* capture = Capture::on(leaf.device())) capture->wrote_alike(low);
}

void drop_low_copy(const TensorImpl* leaf) noexcept {
  const std::lock_guard lock(table().mutex);
  table().copies.erase(leaf);
}

void drop_low_copies() {
  const std::lock_guard lock(table().mutex);
  table().copies.clear();
}

size_t low_copy_count() {
  const std::lock_guard lock(table().mutex);
  return table().copies.size();
}

}  // namespace halftape::detail
