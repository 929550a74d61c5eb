// The CUDA runtime API of the simulated devices, which programs link instead of libcudart. It has
// the functions that a training backend calls; others fail to link, and are added then. Here:
// devices, kernels and errors; the rest is in the files beside this one.
#include "runtime/runtime.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "runtime/program.h"
#include "threads/block.h"
#include "threads/launch.h"

namespace simt {

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;
thread_local cudaStreamCaptureMode thread_capture_mode = cudaStreamCaptureModeGlobal;
thread_local Operands current_operands;

namespace {
constexpr std::size_t kLongestLog = 1 << 20;

struct ErrorText {
  cudaError_t error;
  const char *name, *text;
};
constexpr ErrorText kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorDevicesUnavailable, "cudaErrorDevicesUnavailable",
     "CUDA-capable device(s) is/are busy or unavailable"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources",
     "too many resources requested for launch"},
    {cudaErrorLaunchTimeout, "cudaErrorLaunchTimeout", "the launch timed out and was terminated"},
    {cudaErrorAssert, "cudaErrorAssert", "device-side assert triggered"},
    {cudaErrorHardwareStackError, "cudaErrorHardwareStackError", "hardware stack error"},
    {cudaErrorIllegalInstruction, "cudaErrorIllegalInstruction",
     "an illegal instruction was encountered"},
    {cudaErrorMisalignedAddress, "cudaErrorMisalignedAddress", "misaligned address"},
    {cudaErrorInvalidAddressSpace, "cudaErrorInvalidAddressSpace",
     "operation not supported on global/shared address space"},
    {cudaErrorInvalidPc, "cudaErrorInvalidPc", "invalid program counter"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
    {cudaErrorNvlinkUncorrectable, "cudaErrorNvlinkUncorrectable",
     "uncorrectable NVLink error detected during the execution"},
    {cudaErrorContained, "cudaErrorContained", "Invalid access of peer GPU memory over nvlink"},
    {cudaErrorTensorMemoryLeak, "cudaErrorTensorMemoryLeak", "tensor memory not deallocated"},
    {cudaErrorExternalDevice, "cudaErrorExternalDevice",
     "an async error has occured in external entity outside of CUDA"},
    {cudaErrorMpsClientTerminated, "cudaErrorMpsClientTerminated",
     "the client was terminated by the MPS server"},
    {cudaErrorCooperativeLaunchTooLarge, "cudaErrorCooperativeLaunchTooLarge",
     "too many blocks in cooperative launch"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "capture was not ended in the same stream as it began"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
     "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {cudaErrorGraphExecUpdateFailure, "cudaErrorGraphExecUpdateFailure",
     "the graph update was not performed because of a constraint violation"},
};
const ErrorText* find_error(cudaError_t error) {
  for (const ErrorText& e : kErrors)
    if (e.error == error) return &e;
  return nullptr;
}
}  // namespace

cudaError_t remember(cudaError_t e) {
  if (e != cudaSuccess && e != cudaErrorNotReady) last_error = e;
  return e;
}

cudaError_t invalid(const std::string& why) {
  report(why);
  return cudaErrorInvalidValue;
}

Work kernel_work(int device, const void* function, std::function<std::string()> run) {
  return {.type = cudaGraphNodeTypeKernel,
          .run =
              [=, run = std::move(run), operands = current_operands] {
                World& w = world();
                ++w.counters.launches;
                if (w.log.size() < kLongestLog) w.log.push_back(function);
                if (w.failing_launch > 0 && --w.failing_launch == 0)
                  return break_device(device, w.launch_error, "");
                if (counts_only()) return;
                ++w.launched[function][{settings.order, operands}];
                const DeviceMemory::Access access;
                if (const std::string fault = run(); !fault.empty())
                  break_device(device, cudaErrorLaunchFailure,
                               function_name(function) + ": " + fault);
              },
          .function = function};
}

cudaError_t enqueue_kernel(const void* kernel, bool cooperative, dim3 blocks, dim3 threads,
                           std::size_t shared_bytes, cudaStream_t stream,
                           std::function<void()> body) {
  return call([&]() -> cudaError_t {
    World& w = world();
    CUstream_st* s = find(stream);
    if (!s || s->device != current_device) return cudaErrorInvalidResourceHandle;
    const std::uint64_t in_block = std::uint64_t{threads.x} * threads.y * threads.z;
    const std::uint64_t in_grid = std::uint64_t{blocks.x} * blocks.y * blocks.z;
    if (in_block == 0 || in_block > 1024 || threads.z > 64 || in_grid == 0 ||
        blocks.x > 0x7fffffffu || blocks.y > 65535 || blocks.z > 65535)
      return cudaErrorInvalidConfiguration;
    const auto limit = w.dynamic_shared_limit.find({current_device, kernel});
    if (shared_bytes >
        (limit == w.dynamic_shared_limit.end() ? kDefaultShared : std::size_t(limit->second)))
      return cudaErrorInvalidValue;
    const std::uint64_t resident = std::uint64_t(settings.multiprocessors) *
                                   std::min<std::uint64_t>(32, 2048 / ((in_block + 31) / 32 * 32));
    if (cooperative && in_grid > resident) return cudaErrorCooperativeLaunchTooLarge;

    Grid grid{.blocks = blocks,
              .threads = threads,
              .shared_bytes = shared_bytes,
              .cooperative = cooperative,
              .body = std::move(body)};
    Work work =
        kernel_work(s->device, kernel, [grid = std::move(grid)] { return simt::run(grid); });
    work.launch.func = const_cast<void*>(kernel);
    work.launch.gridDim = blocks;
    work.launch.blockDim = threads;
    work.launch.sharedMemBytes = unsigned(shared_bytes);
    return enqueue(stream, std::move(work));
  });
}

}  // namespace simt

using simt::call;
using simt::current_device;
using simt::settings;
using simt::world;

extern "C" {

// ---------------------------------------------------------------- errors
cudaError_t cudaGetLastError() {
  const cudaError_t e = cudaPeekAtLastError();
  simt::last_error = cudaSuccess;
  return e;
}
cudaError_t cudaPeekAtLastError() {
  const std::lock_guard lock(world().mutex);
  const cudaError_t broken = world().devices[current_device].surfaced;
  return broken != cudaSuccess ? broken : simt::last_error;
}
const char* cudaGetErrorName(cudaError_t error) {
  const auto* known = simt::find_error(error);
  return known ? known->name : "unrecognized error code";
}
const char* cudaGetErrorString(cudaError_t error) {
  const auto* known = simt::find_error(error);
  if (!known) return "unrecognized error code";
  if (error != cudaErrorLaunchFailure) return known->text;
  const std::lock_guard lock(world().mutex);  // here the rig knows more than a GPU would
  static thread_local std::string text;
  text = known->text;
  if (const std::string& fault = world().devices[current_device].fault; !fault.empty())
    text += ": " + fault;
  return text.c_str();
}

// ---------------------------------------------------------------- devices
cudaError_t cudaGetDeviceCount(int* count) {
  *count = settings.devices;
  return simt::remember(settings.devices ? cudaSuccess : cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int device) {
  const auto e = simt::about(device, [&] {
    current_device = device;
    return cudaSuccess;
  });
  return e ? e : call([] { return cudaSuccess; });
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = settings.devices ? CUDART_VERSION : 0;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  return simt::about(device, [&] {
    *p = {};
    std::snprintf(p->name, sizeof p->name, "simulated device %d", device);
    p->totalGlobalMem = settings.memory;
    p->sharedMemPerBlock = simt::kDefaultShared;
    p->sharedMemPerBlockOptin = settings.shared_memory;
    p->sharedMemPerMultiprocessor = settings.shared_memory + 1024;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->warpSize = simt::kWarp;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 0x7fffffff;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->maxThreadsPerMultiProcessor = 2048;
    p->maxBlocksPerMultiProcessor = 32;
    p->multiProcessorCount = settings.multiprocessors;
    p->major = settings.foreign >> device & 1 ? 5 : settings.compute_major;
    p->minor = settings.compute_minor;
    p->pageableMemoryAccess = settings.pageable_access;
    p->l2CacheSize = 60 << 20;
    p->concurrentKernels = p->cooperativeLaunch = p->unifiedAddressing = 1;
    p->memoryPoolsSupported = p->canMapHostMemory = p->streamPrioritiesSupported = 1;
    p->asyncEngineCount = 3;
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp p;
  if (const auto e = cudaGetDeviceProperties(&p, device)) return e;
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = p.multiProcessorCount;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = p.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = p.minor;
      break;
    case cudaDevAttrMaxThreadsPerBlock:
      *value = p.maxThreadsPerBlock;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = p.maxThreadsPerMultiProcessor;
      break;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      *value = p.maxBlocksPerMultiProcessor;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = int(p.sharedMemPerBlock);
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = int(p.sharedMemPerBlockOptin);
      break;
    case cudaDevAttrWarpSize:
      *value = p.warpSize;
      break;
    case cudaDevAttrL2CacheSize:
      *value = p.l2CacheSize;
      break;
    case cudaDevAttrMemoryPoolsSupported:
      *value = settings.memory_pools;
      break;
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrConcurrentKernels:
      *value = 1;
      break;
    default:
      return simt::remember(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  return call([] { return simt::synchronise_device(current_device); });
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }

// ---------------------------------------------------------------- kernels
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  return call([&] {
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
      if (value < 0 || std::size_t(value) > settings.shared_memory) return cudaErrorInvalidValue;
      world().dynamic_shared_limit[{current_device, kernel}] = value;
      ++world().counters.kernel_attributes;
    }
    return cudaSuccess;
  });
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  return call([&] {
    if (settings.foreign >> current_device & 1) return cudaErrorNoKernelImageForDevice;
    *attributes = {};
    attributes->maxThreadsPerBlock = 1024;
    attributes->binaryVersion = 10 * settings.compute_major + settings.compute_minor;
    const auto it = world().dynamic_shared_limit.find({current_device, kernel});
    attributes->maxDynamicSharedSizeBytes =
        it == world().dynamic_shared_limit.end() ? int(simt::kDefaultShared) : it->second;
    return cudaSuccess;
  });
}
cudaError_t cudaFuncGetName(const char** name, const void* kernel) {
  static thread_local std::string text;
  text = simt::function_name(kernel);
  *name = text.c_str();
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int threads,
                                                          size_t shared_bytes) {
  if (threads < 1 || threads > 1024) return simt::remember(cudaErrorInvalidValue);
  *blocks = std::min(32, 2048 / ((threads + 31) / 32 * 32));
  // The system reserves one KiB for each block.
  *blocks = std::min(*blocks, int((settings.shared_memory + 1024) / (shared_bytes + 1024)));
  return cudaSuccess;
}

}  // extern "C"
