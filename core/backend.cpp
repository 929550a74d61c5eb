#include "halftape/core/backend.h"

#include "halftape/core/formula/reduce.h"

namespace halftape {
namespace {
std::atomic<Backend*> replaced[kDeviceTypes];
}

Backend& backend(Device device) {
  if (Backend* b = replaced[static_cast<size_t>(device.type())].load(std::memory_order_acquire))
    return *b;
  return device.is_cpu() ? cpu_backend() : cuda_backend(device);
}

BufferPtr Backend::allocate_pinned(size_t) {
  detail::fail("pin_memory: pinned memory belongs to a GPU; the backend of this device is ",
               name());
}

void Backend::scatter_add(const Array& y, const Array& g, int dim, const Array& index,
                          IndexUse use) {
  scatter_reduce(ReduceOps::index<formula::Sum>(), y, g, dim, index, use);
}

Backend* swap_backend(DeviceType type, Backend* b) {
  return replaced[static_cast<size_t>(type)].exchange(b, std::memory_order_acq_rel);
}

}  // namespace halftape
