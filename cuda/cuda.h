// The GPU, for users: is there one, how much of its memory is taken, streams and events. No CUDA
// header is needed to include this, and no CUDA library to start a program that does: the backend
// is a library of its own, loaded the first time that a CUDA device is asked for.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "halftape/core/device.h"

namespace halftape::cuda {

/// Can tensors be put on a GPU, in this build and on this machine? Never throws.
bool is_available();
/// Why not: no library, no driver, no GPU, … Empty when one is available.
std::string unavailable_reason();
/// 0 when none is available.
DeviceIndex device_count();
/// "NVIDIA H200", and 9.0 as 90.
std::string device_name(Device device = kCUDA);
int compute_capability(Device device = kCUDA);

/// Waits for all work on the device. Throws what has failed there since.
void synchronize(Device device = kCUDA);

// Memory in bytes. `allocated`: held by arrays. `reserved`: taken from the device, with what is
// kept for reuse. All 0 when no GPU is available.
int64_t memory_allocated(Device device = kCUDA);
int64_t max_memory_allocated(Device device = kCUDA);
int64_t memory_reserved(Device device = kCUDA);
void reset_peak_memory_stats(Device device = kCUDA);
/// Gives memory that no array holds back to the device.
void empty_cache(Device device = kCUDA);

/// After every kernel: wait, and throw what it did wrong there and then, by name. For debugging;
/// also set by HALFTAPE_CUDA_BLOCKING=1 in the environment. Errors otherwise surface at a later
/// call.
void set_blocking(bool blocking);

/// May a product of float16 factors be summed up in float16 between the parts of a split sum, as
/// PyTorch lets it by default? Ours is off.
void allow_fp16_reduced_precision_reduction(bool allowed);

/// A queue of work on a device. Work in one stream runs in order; streams run beside one another.
/// Copies speak of the same stream. Streams are taken from a pool and live as long as the program.
class Stream {
 public:
  /// The next stream of the pool.
  explicit Stream(Device device = kCUDA, bool high_priority = false);
  Device device() const { return device_; }
  /// Waits for the work that is in it now.
  void synchronize() const;
  /// Is all of its work done?
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

/// Where this thread's work on the device goes; without a StreamGuard, the device's first stream.
Stream current_stream(Device device = kCUDA);

/// Sends this thread's work on the stream's device there, for as long as it lives. What is
/// allocated meanwhile may be reused as soon as it is freed and this stream has got there: an array
/// that other streams use must outlive their work, or they must have waited for it.
class [[nodiscard]] StreamGuard {
 public:
  explicit StreamGuard(const Stream& stream);
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
  /// Now, in that stream.
  void record(const Stream& stream = current_stream());
  /// Work put into `stream` from here on waits for the event.
  void block(const Stream& stream = current_stream()) const;
  /// The host waits for it.
  void synchronize() const;
  bool query() const;
  /// Milliseconds from this event to a later one, both of which have happened.
  float elapsed_time(const Event& later) const;

 private:
  std::shared_ptr<void> handle_;
  bool timing_;
};

}  // namespace halftape::cuda
