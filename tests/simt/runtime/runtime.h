// Shared by the files of the runtime API.
#pragma once
#include <cuda_runtime_api.h>

#include <functional>
#include <string>

#include "runtime/device.h"
#include "runtime/memory.h"
#include "runtime/queue.h"

namespace simt {

inline constexpr std::size_t kDefaultShared = 48 << 10;  // more takes cudaFuncSetAttribute

extern thread_local int current_device;
extern thread_local cudaError_t last_error;
extern thread_local cudaStreamCaptureMode thread_capture_mode;
extern thread_local Operands current_operands;  // of the next launches

/// Keeps the error for cudaGetLastError(), and returns it.
cudaError_t remember(cudaError_t e);
/// Reports it as well.
cudaError_t invalid(const std::string& why);

/// Most functions of the API: under the lock, on a device that still works. Whatever they are
/// about, they use this thread's current device, device 0 if it has chosen none.
template <class Body>
cudaError_t call(Body&& body) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  if (settings.devices == 0) return remember(cudaErrorNoDevice);
  if (w.in_host_function) {
    report("a function that cudaLaunchHostFunc called used the CUDA API, which is not permitted");
    return remember(cudaErrorNotPermitted);
  }
  if (settings.busy >> current_device & 1) return remember(cudaErrorDevicesUnavailable);
  w.counters.contexts |= 1u << current_device;
  if (const cudaError_t e = w.devices[current_device].surfaced; e != cudaSuccess)
    return remember(e);
  return remember(body());
}

/// Functions that ask about a device without using it.
template <class Body>
cudaError_t about(int device, Body&& body) {
  const std::lock_guard lock(world().mutex);
  if (settings.devices == 0) return remember(cudaErrorNoDevice);
  if (device < 0 || device >= settings.devices) return remember(cudaErrorInvalidDevice);
  return remember(body());
}

/// For calls that a running capture forbids ("potentially unsafe API calls"), in this thread, or in
/// any if its mode is global. They invalidate the capture.
bool forbidden_by_capture();

cudaError_t synchronise(CUstream_st* stream);
cudaError_t synchronise_device(int device);

/// Bytes of the device that are not to be had.
std::size_t taken(int device);
/// True if the address is in memory from cudaHostAlloc().
bool is_pinned(const void* address, std::size_t size);
/// Frees the memory for which cudaFreeHost() was called while work was pending.
void release_freed_pinned();

/// Enqueues a kernel, or work that counts as one: it is counted and logged, and may be the launch
/// that fails. run() returns the kernel's fault.
Work kernel_work(int device, const void* function, std::function<std::string()> run);

}  // namespace simt
