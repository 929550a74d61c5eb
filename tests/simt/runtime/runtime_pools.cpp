// The CUDA runtime API: pools of memory.
#include <algorithm>

#include "runtime/runtime.h"

using simt::call;
using simt::settings;
using simt::world;

extern "C" {

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* wanted) {
  return call([&] {
    if (!pool || !wanted || wanted->allocType != cudaMemAllocationTypePinned ||
        wanted->location.type != cudaMemLocationTypeDevice || wanted->location.id < 0 ||
        wanted->location.id >= settings.devices)
      return cudaErrorInvalidValue;
    if (!settings.memory_pools) return cudaErrorNotSupported;
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
