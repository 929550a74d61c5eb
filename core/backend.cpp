#include "halftape/core/backend.h"

#include <tuple>

#include "halftape/core/formula/reduce.h"

namespace halftape {
namespace {
std::atomic<Backend*> replaced[kDeviceTypes];
// Of one device at a time; null: none.
thread_local constinit Backend* mine = nullptr;
thread_local constinit Device mine_of = kCPU;
}  // namespace

Backend& backend(Device device) {
  if (mine && mine_of == device) [[unlikely]]
    return *mine;
  if (Backend* b = replaced[static_cast<size_t>(device.type())].load(std::memory_order_acquire))
    return *b;
  return device.is_cpu() ? cpu_backend() : cuda_backend(device);
}

BackendGuard::BackendGuard(Device device, Backend& backend) : before_(mine_of, mine) {
  mine_of = device;
  mine = &backend;
}
BackendGuard::~BackendGuard() { std::tie(mine_of, mine) = before_; }

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
