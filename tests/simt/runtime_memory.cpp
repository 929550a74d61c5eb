// The CUDA runtime API: memory, pools of it, copies.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "runtime.h"
#include "sanitizers.h"

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
  if (source == Side::Pageable && target == Side::Device) {
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
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t size,
                                cudaStream_t stream) {
  return call([&] { return simt::copy_async(to, from, size, cudaMemcpyDeviceToDevice, stream); });
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

// ---------------------------------------------------------------- pools
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* wanted) {
  return call([&] {
    if (!pool || !wanted || wanted->allocType != cudaMemAllocationTypePinned ||
        wanted->location.type != cudaMemLocationTypeDevice || wanted->location.id < 0 ||
        wanted->location.id >= settings.devices)
      return cudaErrorInvalidValue;
    *pool = new CUmemPoolHandle_st{.device = wanted->location.id};
    world().pools.insert(*pool);
    return cudaSuccess;
  });
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  return call([&] {
    if (!world().pools.erase(pool)) return cudaErrorInvalidValue;
    std::erase_if(world().current_pools, [=](const auto& entry) { return entry.second == pool; });
    if (pool->used == 0 && pool->unfinished_frees == 0)
      delete pool;  // else allocations speak of it
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return call([&] {
    if (device < 0 || device >= settings.devices) return cudaErrorInvalidDevice;
    auto& one = world().default_pools[device];
    if (!one) world().pools.insert(one = new CUmemPoolHandle_st{.device = device});
    *pool = one;
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  return call([&] {
    const auto it = world().current_pools.find(device);
    if (it == world().current_pools.end()) return cudaDeviceGetDefaultMemPool(pool, device);
    *pool = it->second;
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
  return call([&] {
    if (!world().pools.count(pool) || pool->device != device) return cudaErrorInvalidValue;
    world().current_pools[device] = pool;
    return cudaSuccess;
  });
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return call([&] {
    if (!world().pools.count(pool)) return cudaErrorInvalidValue;
    switch (attribute) {
      case cudaMemPoolAttrReleaseThreshold:
        pool->threshold = *static_cast<std::uint64_t*>(value);
        return cudaSuccess;
      case cudaMemPoolAttrUsedMemHigh:  // only to be reset
        if (*static_cast<std::uint64_t*>(value)) return cudaErrorInvalidValue;
        pool->used_high = pool->used;
        return cudaSuccess;
      case cudaMemPoolAttrReservedMemHigh:
        if (*static_cast<std::uint64_t*>(value)) return cudaErrorInvalidValue;
        pool->reserved_high = pool->reserved;
        return cudaSuccess;
      case cudaMemPoolReuseFollowEventDependencies:
      case cudaMemPoolReuseAllowOpportunistic:
      case cudaMemPoolReuseAllowInternalDependencies:
        pool->switches[attribute] = *static_cast<int*>(value);
        return cudaSuccess;
      default:
        return cudaErrorInvalidValue;
    }
  });
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return call([&] {
    if (!world().pools.count(pool)) return cudaErrorInvalidValue;
    auto* const number = static_cast<std::uint64_t*>(value);
    switch (attribute) {
      case cudaMemPoolAttrReleaseThreshold:
        *number = pool->threshold;
        return cudaSuccess;
      case cudaMemPoolAttrUsedMemCurrent:
        *number = pool->used;
        return cudaSuccess;
      case cudaMemPoolAttrUsedMemHigh:
        *number = pool->used_high;
        return cudaSuccess;
      case cudaMemPoolAttrReservedMemCurrent:
        *number = pool->reserved;
        return cudaSuccess;
      case cudaMemPoolAttrReservedMemHigh:
        *number = pool->reserved_high;
        return cudaSuccess;
      case cudaMemPoolReuseFollowEventDependencies:
      case cudaMemPoolReuseAllowOpportunistic:
      case cudaMemPoolReuseAllowInternalDependencies:
        *static_cast<int*>(value) = pool->switches.count(attribute) ? pool->switches[attribute] : 1;
        return cudaSuccess;
      default:
        return cudaErrorInvalidValue;
    }
  });
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep) {
  return call([&] {
    if (!world().pools.count(pool)) return cudaErrorInvalidValue;
    pool->reserved = std::max<std::uint64_t>(pool->used + pool->unfinished_frees,
                                             std::min<std::uint64_t>(pool->reserved, keep));
    return cudaSuccess;
  });
}
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, size_t) {
  return cudaSuccess;
}

}  // extern "C"
