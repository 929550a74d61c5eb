// The host's state of one GPU: its memory pool, its streams, the names of recent launches, and a
// board on which kernels leave notes.
#pragma once
#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "halftape/core/array.h"
#include "halftape/cuda/runtime/runtime.h"

namespace halftape::cuda {

/// Throws Error for any result but success: "add: an illegal memory access was encountered (…)".
void check(cudaError_t result, const char* what);

/// Notes of kernels for the host, in pinned memory that both see, so that reading them waits for
/// nothing. The first note stays until the host has read it.
struct Board {
  /// An index out of range; `use` and `argument` point to the host's own strings.
  struct BadIndex {
    unsigned taken, ready;
    const char *op, *argument;
    long long value, position, low, limit;
  } bad_index;
  /// Steps in a row that were skipped, for `report` of the Transition that counted them.
  struct Skips {
    unsigned taken, ready;
    long long in_row;
    float scale;
    int bad_loss;
    void (*report)(int64_t, float, bool);
  } skips;
};

/// While it lives, this thread may make calls on other streams that its capture forbids. They run
/// at once and are no part of the captured step.
class RelaxedCapture {
 public:
  RelaxedCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

class Arena;

class Context {
 public:
  explicit Context(DeviceIndex index);
  static int count();  // GPUs of the machine
  /// Why this one cannot be used, as far as its attributes tell; empty if nothing is known against
  /// it. The GPU stays unused: to use one takes memory there, and fails if another process has it.
  static std::string obstacle(DeviceIndex);
  static Context& of(DeviceIndex);  // made at the first call
  static Context& of(const Array& a) { return of(a.device().index()); }

  DeviceIndex index() const { return index_; }
  int multiprocessors() const { return properties_.multiProcessorCount; }
  const cudaDeviceProp& properties() const { return properties_; }
  /// Makes the device CUDA's current one in this thread. In a thread that has chosen none, almost
  /// every call of CUDA begins to use GPU 0, whichever stream it names.
  void choose() const;
  Board* board() const { return board_; }

  /// Memory in the order of the current stream. If there is none, gives the memory kept for reuse
  /// back to the device and tries once more; then throws OutOfMemoryError.
  BufferPtr allocate(size_t bytes);
  /// The arena of the step that this thread captures, or null. During a capture nothing is given
  /// back to the pool.
  static Arena*& capturing();
  /// Gives memory of the pool back in the order of a stream.
  void release(void* bytes, cudaStream_t stream) noexcept;
  /// Memory of the pool, never of an arena.
  void* from_pool(size_t bytes, cudaStream_t stream);
  /// The count of finished blocks (cuda/runtime/last_block.cuh) of this stream's launches; 0 at
  /// first.
  unsigned* block_count(cudaStream_t stream);
  /// Host memory that every device can read and write by itself (pinned.cpp).
  BufferPtr allocate_pinned(size_t bytes);
  /// The stream has just been given a copy from or to that memory, which nobody else gets until the
  /// copy is done.
  static void used_by_copy(const Buffer& pinned, cudaStream_t stream);
  /// Gives pinned memory that is kept for reuse back to the system.
  static void free_unused_pinned() noexcept;
  /// True if a copy from this memory, which is not from allocate_pinned(), may read it after the
  /// call: if others have pinned it, or the device needs no pinned memory.
  bool copies_late_from(const void* host) const;
  MemoryStats memory() const;
  void reset_peak();
  void empty_cache();

  cudaStream_t current() const;
  void set_current(cudaStream_t stream) const;
  static std::function<void()> streams_of_thread();  // as in Runtime
  cudaStream_t next_stream(bool high_priority);
  /// A stream that nobody else gets until it is returned.
  cudaStream_t borrow_stream();
  void return_stream(cudaStream_t stream);

  /// Waits for the stream and throws what went wrong.
  void synchronize(cudaStream_t stream);
  void synchronize();
  /// Waits for all streams but those that capture, one after the other. Waiting for the device
  /// would break the capture of another thread.
  cudaError_t wait();
  void begin_capture(cudaStream_t stream);
  /// What `then` gets from now on begins after what `first` has got by now. Does nothing while one
  /// of the two captures: before it did, everything was done.
  void order(cudaStream_t first, cudaStream_t then);
  /// The current stream uses memory that another one may have taken from the pool.
  void record_use(const Buffer& bytes);
  /// Called after each launch: remembers its name for errors that surface later, throws its own.
  void launched(const char* what, cudaError_t result, cudaStream_t stream);
  /// Throws or warns of the notes on the board. Every call of the backend begins with this. A bad
  /// index is thrown once in every thread that has used the device, as any may hold the numbers.
  void read_board();
  /// check() of a call that may return an earlier launch's failure: names the recent launches.
  void check_earlier(cudaError_t result, const char* what) const;

  static std::atomic<bool> blocking;
  static std::atomic<bool> reduced_sums;  // float16 products may join partial sums in float16

 private:
  bool captures(cudaStream_t stream) const;  // while begin_ is held
  std::string recent_launches() const;
  cudaStream_t make_stream(int priority);  // 0 is the usual one

  DeviceIndex index_;
  cudaDeviceProp properties_{};
  cudaMemPool_t pool_ = nullptr;
  Board* board_ = nullptr;
  std::shared_mutex begin_;         // held alone while a capture begins
  std::mutex mutex_;                // for the members below
  std::vector<cudaStream_t> made_;  // all streams
  cudaStream_t first_ = nullptr;    // the default of every thread
  struct Pool {
    std::vector<cudaStream_t> streams;
    size_t next = 0;
  };
  Pool normal_, urgent_;  // of streams
  std::vector<cudaStream_t> returned_;
  std::map<cudaStream_t, unsigned*> block_counts_;
  std::string bad_index_;  // the last one
  std::atomic<uint64_t> bad_indices_{1};
  static constexpr size_t kRemembered = 8;
  std::array<std::atomic<const char*>, kRemembered> recent_{};
  std::atomic<size_t> launches_{0};  // since the last synchronisation
};

/// A device, and the stream of a call.
struct Queue {
  Context& context;
  cudaStream_t stream;
};
/// This thread's queue on the array's device, which becomes CUDA's current one. Reads the board.
Queue queue(const Array& on);

}  // namespace halftape::cuda
