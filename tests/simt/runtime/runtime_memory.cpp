// The CUDA runtime API: memory and copies.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "runtime/runtime.h"
#include "threads/sanitizers.h"

namespace simt {

std::size_t taken(int device) {
  std::size_t bytes = world().devices[device].plain_bytes;
  for (const CUmemPoolHandle_st* pool : world().pools)
    if (pool->device == device) bytes += pool->reserved;
  return bytes;
}

bool is_pinned(const void* address, std::size_t size) {
  const auto& all = world().pinned;
  auto it = all.upper_bound(static_cast<const char*>(address));
  if (it == all.begin()) return false;
  --it;
  return static_cast<const char*>(address) + size <= it->first + it->second;
}

void release_freed_pinned() {
  for (const auto& [address, size] : std::exchange(world().freed_pinned, {})) {
    allow(address, size);
    std::free(const_cast<char*>(address));
  }
}

namespace {

constexpr unsigned char kPoison = 0xFF;

bool planned_to_fail() {
  World& w = world();
  if (w.allocations_fail) return true;
  if (w.failing_allocation == 0 || --w.failing_allocation > 0) return false;
  w.allocations_fail = w.all_allocations_after;
  return true;
}

cudaError_t allocate(void** address, std::size_t size) {
  if (!address) return cudaErrorInvalidValue;
  *address = nullptr;
  if (forbidden_by_capture()) return cudaErrorStreamCaptureUnsupported;
  if (size == 0) return cudaSuccess;
  ++world().counters.allocations;
  world().counters.allocated_bytes += std::int64_t(size);
  const std::size_t left = settings.memory - std::min(settings.memory, taken(current_device));
  if (planned_to_fail() || size > left) return cudaErrorMemoryAllocation;
  *address = DeviceMemory::memory().allocate(size, current_device, nullptr);
  if (!*address) return cudaErrorMemoryAllocation;
  world().devices[current_device].plain_bytes += size;
  return cudaSuccess;
}

cudaError_t free_now(void* address) {
  if (!address) return cudaSuccess;
  if (forbidden_by_capture()) return cudaErrorStreamCaptureUnsupported;
  World& w = world();
  Allocation* a = DeviceMemory::memory().find(address);
  if (!a || a->free_enqueued || a->of_graph)
    return invalid("cudaFree of an address that is no allocation, or is freed already: " +
                   DeviceMemory::memory().describe(address));
  const int device = a->device;
  ++w.counters.frees;
  w.drain(device);  // as the real one does
  if (a->pool)
    a->pool->used -= a->size;
  else
    w.devices[device].plain_bytes -= a->size;
  DeviceMemory::memory().release(address);
  return cudaSuccess;
}

/// Memory that a graph allocates when it runs: held from the capture on.
cudaError_t allocate_in_graph(void** address, std::size_t size, CUstream_st* s) {
  void* p = DeviceMemory::memory().allocate(size, s->device, nullptr);
  if (!p) return cudaErrorMemoryAllocation;
  DeviceMemory::memory().find(p)->of_graph = true;
  s->capture->graph->memory.push_back(
      {p, [](void* dead) { DeviceMemory::memory().release(dead); }});
  *address = p;
  return enqueue(
      s, {.type = cudaGraphNodeTypeMemAlloc, .run = [p] { DeviceMemory::memory().begin_life(p); }});
}

cudaError_t allocate_async(void** address, std::size_t size, CUmemPoolHandle_st* pool,
                           cudaStream_t stream) {
  World& w = world();
  if (!address || !w.pools.count(pool)) return cudaErrorInvalidValue;
  *address = nullptr;
  CUstream_st* s = find(stream);
  if (!s) return cudaErrorInvalidResourceHandle;
  if (size == 0) return cudaSuccess;
  ++w.counters.allocations;
  w.counters.allocated_bytes += std::int64_t(size);
  if (planned_to_fail()) return cudaErrorMemoryAllocation;
  if (s->capture) return allocate_in_graph(address, size, s);
  const std::uint64_t wanted = pool->used + size;
  if (wanted > pool->reserved && taken(pool->device) + (wanted - pool->reserved) > settings.memory)
    return cudaErrorMemoryAllocation;
  void* p = DeviceMemory::memory().allocate(size, pool->device, pool);
  if (!p) return cudaErrorMemoryAllocation;
  pool->used = wanted;
  pool->used_high = std::max(pool->used_high, pool->used);
  pool->reserved = std::max(pool->reserved, pool->used);
  pool->reserved_high = std::max(pool->reserved_high, pool->reserved);
  *address = p;
  if (settings.mode == Mode::Immediate) return cudaSuccess;
  // Nobody may use it before the stream has got here.
  DeviceMemory::memory().end_life(p);
  return enqueue(stream, {.type = cudaGraphNodeTypeMemAlloc, .run = [p] {
                            if (DeviceMemory::memory().find(p))
                              DeviceMemory::memory().begin_life(p);
                          }});
}

cudaError_t free_async(void* address, cudaStream_t stream) {
  if (!address) return cudaSuccess;
  World& w = world();
  CUstream_st* s = find(stream);
  if (!s) return cudaErrorInvalidResourceHandle;
  DeviceMemory& memory = DeviceMemory::memory();
  Allocation* a = memory.find(address);
  if (!a || a->free_enqueued)
    return invalid("cudaFreeAsync of an address that is no allocation, or is freed already: " +
                   memory.describe(address));
  if (s->capture) {
    if (!a->of_graph)
      return invalid("cudaFreeAsync in a capture, of memory that was allocated outside");
    return enqueue(s, {.type = cudaGraphNodeTypeMemFree,
                       .run = [address] { DeviceMemory::memory().end_life(address); }});
  }
  if (!a->pool) return invalid("cudaFreeAsync of memory that cudaMalloc gave");
  ++w.counters.frees;
  CUmemPoolHandle_st* pool = a->pool;
  const std::size_t size = a->size;
  a->free_enqueued = true;
  pool->used -= size;
  pool->unfinished_frees += size;
  return enqueue(stream, {.type = cudaGraphNodeTypeMemFree, .run = [=] {
                            DeviceMemory::memory().release(address);
                            pool->unfinished_frees -= size;
                          }});
}

cudaError_t allocate_pinned(void** address, std::size_t size) {
  if (!address) return cudaErrorInvalidValue;
  *address = nullptr;
  if (forbidden_by_capture()) return cudaErrorStreamCaptureUnsupported;
  if (size == 0) return cudaSuccess;
  ++world().counters.pinned_allocations;
  if (planned_to_fail()) return cudaErrorMemoryAllocation;
  *address = std::aligned_alloc(256, (size + 255) / 256 * 256);
  if (!*address) return cudaErrorMemoryAllocation;
  std::memset(*address, kPoison, size);
  world().pinned[static_cast<const char*>(*address)] = size;
  return cudaSuccess;
}

cudaError_t free_pinned(void* address) {
  if (!address) return cudaSuccess;
  if (forbidden_by_capture()) return cudaErrorStreamCaptureUnsupported;
  World& w = world();
  const auto it = w.pinned.find(static_cast<const char*>(address));
  if (it == w.pinned.end())
    return invalid("cudaFreeHost of an address that cudaHostAlloc did not give");
  std::memset(address, kPoison, it->second);  // a copy that is still on its way shall read it
  if (w.pending()) {
    forbid(address, it->second);
    w.freed_pinned.insert(*it);
  } else {
    std::free(address);
  }
  w.pinned.erase(it);
  return cudaSuccess;
}

// ---------------------------------------------------------------- copies

enum class Side { Device, Pinned, Pageable };
Side side_of(const void* address, std::size_t size) {
  if (DeviceMemory::memory().contains(address)) return Side::Device;
  return is_pinned(address, size) ? Side::Pinned : Side::Pageable;
}

cudaError_t check_range(const char* what, const void* address, std::size_t size) {
  DeviceMemory& memory = DeviceMemory::memory();
  if (!memory.contains(address) || memory.holds(address, size)) return cudaSuccess;
  return invalid(std::string(what) + " of " + std::to_string(size) +
                 " bytes beyond an allocation: it begins " + memory.describe(address));
}

cudaError_t check_copy(const void* to, const void* from, std::size_t size, cudaMemcpyKind kind) {
  const bool to_device = DeviceMemory::memory().contains(to);
  const bool from_device = DeviceMemory::memory().contains(from);
  const bool fits = kind == cudaMemcpyDefault ||
                    (kind == cudaMemcpyHostToDevice && to_device && !from_device) ||
                    (kind == cudaMemcpyDeviceToHost && !to_device && from_device) ||
                    (kind == cudaMemcpyDeviceToDevice && to_device && from_device) ||
                    (kind == cudaMemcpyHostToHost && !to_device && !from_device);
  if (!fits) return invalid("a copy's kind is not what its addresses are");
  const Allocation *a = DeviceMemory::memory().around(to), *b = DeviceMemory::memory().around(from);
  if (a && b && a->device != b->device && (a->pool || b->pool))
    return invalid("only cudaMemcpyPeerAsync reaches into the memory pool of another device");
  if (const auto e = check_range("a copy to memory", to, size)) return e;
  return check_range("a copy from memory", from, size);
}

void count_copy(const void* to, const void* from) {
  Counters& c = world().counters;
  const bool to_device = DeviceMemory::memory().contains(to);
  if (DeviceMemory::memory().contains(from))
    ++(to_device ? c.device_to_device : c.device_to_host);
  else if (to_device)
    ++c.host_to_device;
}

cudaError_t copy_async(void* to, const void* from, std::size_t size, cudaMemcpyKind kind,
                       cudaStream_t stream) {
  CUstream_st* s = find(stream);
  if (!s) return cudaErrorInvalidResourceHandle;
  if (size == 0) return cudaSuccess;
  if (const auto e = check_copy(to, from, size, kind)) return e;
  count_copy(to, from);
  Work work{.type = cudaGraphNodeTypeMemcpy,
            .run = [=] { DeviceMemory::memory().copy(to, from, size); }};
  if (s->capture) return enqueue(stream, std::move(work));
  const Side source = side_of(from, size), target = side_of(to, size);
  if (source == Side::Pageable && target == Side::Device && !settings.pageable_access) {
    // The bytes are taken now, into a buffer of the driver.
    const auto* bytes = static_cast<const char*>(from);
    work.run = [to, staged = std::vector<char>(bytes, bytes + size)] {
      DeviceMemory::memory().copy(to, staged.data(), staged.size());
    };
  }
  if (const auto e = enqueue(stream, std::move(work))) return e;
  // To memory that is not pinned the real one waits too.
  return target == Side::Pageable ? synchronise(s) : cudaSuccess;
}

cudaError_t copy_to_peer(void* to, int to_device, const void* from, int from_device,
                         std::size_t size, cudaStream_t stream) {
  if (size == 0) return cudaSuccess;
  const Allocation *a = DeviceMemory::memory().around(to), *b = DeviceMemory::memory().around(from);
  if (!a || !b || a->device != to_device || b->device != from_device)
    return invalid("cudaMemcpyPeerAsync of memory that is not on the devices that it names");
  if (const auto e = check_range("a copy to memory", to, size)) return e;
  if (const auto e = check_range("a copy from memory", from, size)) return e;
  count_copy(to, from);
  return enqueue(stream, {.type = cudaGraphNodeTypeMemcpy,
                          .run = [=] { DeviceMemory::memory().copy(to, from, size); }});
}

cudaError_t copy_now(void* to, const void* from, std::size_t size, cudaMemcpyKind kind) {
  if (forbidden_by_capture()) return cudaErrorStreamCaptureUnsupported;
  if (size == 0) return cudaSuccess;
  if (const auto e = check_copy(to, from, size, kind)) return e;
  count_copy(to, from);
  Work work{.type = cudaGraphNodeTypeMemcpy,
            .run = [=] { DeviceMemory::memory().copy(to, from, size); }};
  if (const auto e = enqueue(nullptr, std::move(work))) return e;
  return synchronise(find(nullptr));
}

cudaError_t set_async(void* to, int value, std::size_t size, cudaStream_t stream) {
  if (size == 0) return cudaSuccess;
  if (const auto e = check_range("a memset of memory", to, size)) return e;
  ++world().counters.memsets;
  return enqueue(stream, {.type = cudaGraphNodeTypeMemset,
                          .run = [=] { DeviceMemory::memory().set(to, value, size); }});
}

}  // namespace
}  // namespace simt

using simt::call;
using simt::current_device;
using simt::find;
using simt::settings;
using simt::world;

extern "C" {

cudaError_t cudaMalloc(void** address, size_t size) {
  return call([&] { return simt::allocate(address, size); });
}
cudaError_t cudaFree(void* address) {
  return call([&] { return simt::free_now(address); });
}
cudaError_t cudaMallocAsync(void** address, size_t size, cudaStream_t stream) {
  return call([&]() -> cudaError_t {
    const CUstream_st* s = find(stream);
    if (!s) return cudaErrorInvalidResourceHandle;
    cudaMemPool_t pool = nullptr;
    cudaDeviceGetMemPool(&pool, s->device);
    return simt::allocate_async(address, size, pool, stream);
  });
}
cudaError_t cudaMallocFromPoolAsync(void** address, size_t size, cudaMemPool_t pool,
                                    cudaStream_t stream) {
  return call([&] { return simt::allocate_async(address, size, pool, stream); });
}
cudaError_t cudaFreeAsync(void* address, cudaStream_t stream) {
  return call([&] { return simt::free_async(address, stream); });
}
cudaError_t cudaMallocHost(void** address, size_t size) {
  return call([&] { return simt::allocate_pinned(address, size); });
}
cudaError_t cudaHostAlloc(void** address, size_t size, unsigned) {
  return call([&] { return simt::allocate_pinned(address, size); });
}
cudaError_t cudaFreeHost(void* address) {
  return call([&] { return simt::free_pinned(address); });
}
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  return call([&] {
    if (!simt::is_pinned(host, 0)) return cudaErrorInvalidValue;
    *device = host;
    return cudaSuccess;
  });
}
cudaError_t cudaHostRegister(void* address, size_t size, unsigned) {
  return call([&] {
    world().pinned[static_cast<const char*>(address)] = size;
    return cudaSuccess;
  });
}
cudaError_t cudaHostUnregister(void* address) {
  return call([&] {
    return world().pinned.erase(static_cast<const char*>(address)) ? cudaSuccess
                                                                   : cudaErrorInvalidValue;
  });
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return call([&] {
    *total = settings.memory;
    *free = settings.memory - std::min(settings.memory, simt::taken(current_device));
    return cudaSuccess;
  });
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  return call([&] {
    *attributes = {};
    attributes->device = -1;
    attributes->type = cudaMemoryTypeUnregistered;
    if (simt::is_device_memory(address)) {
      attributes->type = cudaMemoryTypeDevice;
      attributes->device = current_device;
      attributes->devicePointer = const_cast<void*>(address);
    } else if (simt::is_pinned(address, 0)) {
      attributes->type = cudaMemoryTypeHost;
      attributes->devicePointer = attributes->hostPointer = const_cast<void*>(address);
    }
    return cudaSuccess;
  });
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t size, cudaMemcpyKind kind) {
  return call([&] { return simt::copy_now(to, from, size, kind); });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t size, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return call([&] { return simt::copy_async(to, from, size, kind, stream); });
}
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                size_t size, cudaStream_t stream) {
  return call([&] { return simt::copy_to_peer(to, to_device, from, from_device, size, stream); });
}
cudaError_t cudaMemset(void* to, int value, size_t size) {
  return call([&] {
    return simt::forbidden_by_capture() ? cudaErrorStreamCaptureUnsupported
                                        : simt::set_async(to, value, size, nullptr);
  });
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t size, cudaStream_t stream) {
  return call([&] { return simt::set_async(to, value, size, stream); });
}

}  // extern "C"
