// The GPU, for users: availability, memory, streams and events. Including this needs no CUDA
// header, and the program starts without CUDA libraries: the backend is a library of its own, which
// is loaded when a CUDA device is first used.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "halftape/core/device.h"

namespace halftape::cuda {

/// True if tensors can be put on a GPU, in this build and on this machine. Never throws.
bool is_available();
/// The reason why not: no library, no driver, no GPU, … Empty if one is available.
std::string unavailable_reason();
/// 0 when none is available.
DeviceIndex device_count();
/// "NVIDIA H200", and 9.0 as 90.
std::string device_name(Device device = kCUDA);
int compute_capability(Device device = kCUDA);

/// Makes the device CUDA's current one in this thread, for calls of other libraries. Halftape's own
/// calls, and letting go of a tensor, make it that of the tensor.
void use_device(Device device);

/// Waits for all work on the device. Throws what has failed there since the last wait.
void synchronize(Device device = kCUDA);

// Memory in bytes. `allocated`: held by arrays. `reserved`: taken from the device, including memory
// kept for reuse. All 0 if no GPU is available.
int64_t memory_allocated(Device device = kCUDA);
int64_t max_memory_allocated(Device device = kCUDA);
int64_t memory_reserved(Device device = kCUDA);
void reset_peak_memory_stats(Device device = kCUDA);
/// Gives memory that no array holds back to the device.
void empty_cache(Device device = kCUDA);

/// Waits after every kernel and throws its errors at once, with its name; otherwise errors surface
/// at a later call. For debugging; also set by HALFTAPE_CUDA_BLOCKING=1 in the environment.
void set_blocking(bool blocking);

/// Allows products of float16 factors to join the parts of a split sum in float16, as PyTorch does
/// by default. Off by default.
void allow_fp16_reduced_precision_reduction(bool allowed);

/// A queue of work on a device. Work in one stream runs in order; streams run concurrently. Copies
/// name the same stream. Streams come from a pool and live as long as the program.
class Stream {
 public:
  /// The next stream of the pool.
  explicit Stream(Device device = kCUDA, bool high_priority = false);
  Device device() const { return device_; }
  /// Waits for the work that is in the stream now.
  void synchronize() const;
  /// True if all of its work is done.
  bool query() const;
  bool operator==(const Stream&) const = default;
  /// The cudaStream_t.
  void* handle() const { return handle_; }

 private:
  friend Stream current_stream(Device);
  Stream(Device device, void* handle) : device_(device), handle_(handle) {}
  Device device_;
  void* handle_;
};

/// The stream of this thread's work on the device; without a StreamGuard, the device's first
/// stream.
Stream current_stream(Device device = kCUDA);

/// While it lives, this thread's work on the stream's device goes into the stream. Memory allocated
/// meanwhile may be reused once it is freed and this stream has reached that point. So an array
/// that other streams use must outlive their work, or this stream must wait for them.
class [[nodiscard]] StreamGuard {
 public:
  [[nodiscard]] explicit StreamGuard(const Stream& stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  Stream before_;
};

/// A point in a stream, to wait for or to measure from.
class Event {
 public:
  explicit Event(bool enable_timing = false, Device device = kCUDA);
  /// Records the event behind the present work of the stream.
  void record(const Stream& stream = current_stream());
  /// Later work in `stream` waits for the event.
  void block(const Stream& stream = current_stream()) const;
  /// The host waits for the event.
  void synchronize() const;
  /// True if it has happened.
  bool query() const;
  /// Milliseconds from this event to a later one; both must have happened.
  float elapsed_time(const Event& later) const;

 private:
  std::shared_ptr<void> handle_;
  Device device_;
  bool timing_;
};

}  // namespace halftape::cuda
