// The interface between the library that every program links and the CUDA library, which is loaded
// when a program first asks for a GPU.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "halftape/core/contract/backend.h"

namespace halftape::cuda {

struct MemoryStats {
  int64_t allocated = 0, peak = 0, reserved = 0;
};

/// The calls of the CUDA library beside the Backend's. Handles are cudaStream_t and cudaEvent_t.
/// Everything throws Error.
class Runtime {
 public:
  virtual ~Runtime() = default;
  virtual DeviceIndex device_count() const = 0;
  virtual std::string device_name(DeviceIndex) const = 0;
  virtual int compute_capability(DeviceIndex) const = 0;
  virtual Backend& backend(DeviceIndex) = 0;
  /// Makes the device CUDA's current one in this thread. Calls below that name no device need that.
  virtual void use_device(DeviceIndex) = 0;

  virtual MemoryStats memory(DeviceIndex) = 0;
  virtual void reset_peak(DeviceIndex) = 0;
  virtual void empty_cache(DeviceIndex) = 0;
  virtual void set_blocking(bool) = 0;
  virtual void allow_fp16_reduced_precision_reduction(bool) = 0;

  virtual void* next_stream(DeviceIndex, bool high_priority) = 0;
  virtual void* current_stream(DeviceIndex) = 0;
  virtual void set_current_stream(DeviceIndex, void*) = 0;
  /// Makes its caller's streams, on all devices, those of the thread that got this.
  virtual std::function<void()> streams_of_thread() = 0;
  virtual void synchronize_stream(DeviceIndex, void*) = 0;
  virtual bool query_stream(void*) = 0;
  virtual void* create_event(DeviceIndex, bool timing) = 0;
  virtual void destroy_event(DeviceIndex, void*) noexcept = 0;
  virtual void record_event(void* event, void* stream) = 0;
  virtual void wait_event(void* stream, void* event) = 0;
  virtual void synchronize_event(DeviceIndex, void*) = 0;
  virtual bool query_event(void*) = 0;  // tells of no bad index: a watchdog asks, too
  virtual float elapsed_time(void* from, void* to) = 0;
};

/// Raised with every change of what passes between the libraries, as this file, core/contract/ and
/// Array have it: a library of another version is refused.
inline constexpr int kRuntimeVersion = 6;
static_assert(std::variant_size_v<Call> == 12, "another kind of call needs another version");

/// The exported functions of the library. open: null, with the reason, if no GPU can be used.
extern "C" int halftape_cuda_version();
extern "C" Runtime* halftape_cuda_open(std::string* why_not);

/// The loaded runtime; null, with the reason in unavailable_reason(), if there is none.
Runtime* runtime();
/// For tests: sets the runtime of this process and returns the former one.
Runtime* use_runtime(Runtime*);

}  // namespace halftape::cuda
