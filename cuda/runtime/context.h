// What the host keeps of one GPU: its memory pool, its streams, what was enqueued lately, and a
// board on which kernels leave word.
#pragma once
#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "halftape/core/array.h"
#include "halftape/cuda/runtime/runtime.h"

namespace halftape::cuda {

/// Throws Error for any result but success: "add: an illegal memory access was encountered (…)".
void check(cudaError_t result, const char* what);

/// Where kernels leave word for the host, in pinned memory that both see: reading it waits for
/// nothing. The first word stays until the host has read it.
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

/// For as long as it lives this thread may call what a capture of its forbids, since it is about
/// other streams: what happens now, and is no part of the step.
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
  static int count();               // GPUs that can be used
  static Context& of(DeviceIndex);  // made when first asked for
  static Context& of(const Array& a) { return of(a.device().index()); }

  DeviceIndex index() const { return index_; }
  int multiprocessors() const { return properties_.multiProcessorCount; }
  const cudaDeviceProp& properties() const { return properties_; }
  Board* board() const { return board_; }

  /// Memory in the order of the current stream. Short of it, what is kept for reuse is given back
  /// to the device and the attempt repeated once; then throws OutOfMemoryError.
  BufferPtr allocate(size_t bytes);
  /// The arena from which this thread takes the memory of a step that it captures; null: it
  /// captures none. Meanwhile nothing is given back to the pool.
  static Arena*& capturing();
  /// Straight from the pool.
  void* from_pool(size_t bytes, cudaStream_t stream);
  /// A count of blocks (cuda/runtime/last_block.cuh) for the launches of this stream, which begins
  /// with 0.
  unsigned* block_count(cudaStream_t stream);
  /// Host memory that the device can read and write by itself.
  BufferPtr allocate_pinned(size_t bytes);
  /// A copy may still be reading it: waits. Who loads batches through pinned memory keeps it.
  static void free_pinned(void* bytes) noexcept;
  MemoryStats memory() const;
  void reset_peak();
  void empty_cache();

  cudaStream_t current() const;
  void set_current(cudaStream_t stream) const;
  cudaStream_t next_stream(bool high_priority);
  /// One that nobody else has until it is returned.
  cudaStream_t borrow_stream();
  void return_stream(cudaStream_t stream);

  /// Waits for the stream and says what went wrong.
  void synchronize(cudaStream_t stream);
  void synchronize();
  /// Waits for all streams but those that capture, one after the other: to wait for the device
  /// would spoil the capture that another thread may be at.
  cudaError_t wait();
  void begin_capture(cudaStream_t stream);
  /// A launch was tried; remembers its name for errors that surface later. Throws its own.
  void launched(const char* what, cudaError_t result, cudaStream_t stream);
  /// Throws, or warns of, what kernels have left on the board. Every call of the backend begins so.
  void read_board();
  /// check() of a call that may bring earlier work's failure: names what was enqueued lately.
  void check_earlier(cudaError_t result, const char* what);

  static std::atomic<bool> blocking;
  static std::atomic<bool> reduced_sums;  // of float16 products may be joined in float16

 private:
  std::string recent_launches() const;
  cudaStream_t make_stream(int priority);  // 0 is the usual one

  DeviceIndex index_;
  cudaDeviceProp properties_{};
  cudaMemPool_t pool_ = nullptr;
  Board* board_ = nullptr;
  std::mutex mutex_, begin_;        // of what follows; of captures' beginnings
  std::vector<cudaStream_t> made_;  // all streams
  cudaStream_t first_ = nullptr;    // the default of every thread
  struct Pool {
    std::vector<cudaStream_t> streams;
    size_t next = 0;
  };
  Pool normal_, urgent_;  // of streams
  std::vector<cudaStream_t> returned_;
  std::map<cudaStream_t, unsigned*> block_counts_;
  static constexpr size_t kRemembered = 8;
  std::array<std::atomic<const char*>, kRemembered> recent_{};
  std::atomic<size_t> launches_{0};  // since the last synchronisation
};

/// A device with the stream into which a call puts its work.
struct Queue {
  Context& context;
  cudaStream_t stream;
};
/// This thread's on the array's device, which becomes the current one for CUDA; reads the board.
Queue queue(const Array& on);

}  // namespace halftape::cuda
