// The memory of a captured step. Its addresses stay the same, because replays use them again.
// Memory that the step frees is reused within the step; an array that outlives the step keeps the
// whole arena alive.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "halftape/cuda/runtime/context.h"

namespace halftape::cuda {

class Arena : public std::enable_shared_from_this<Arena> {
 public:
  explicit Arena(Context& context);
  /// Waits for all streams, because any of them may still read an array that outlived the step.
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  Context& context() const { return context_; }
  BufferPtr allocate(size_t bytes);
  /// Keeps memory of the pool that the step frees during its capture, when none may be given back.
  void free_later(void* bytes, void* stream) noexcept;
  /// After the capture: gives that memory back, and waits until all of the arena is allocated.
  void settle();
  size_t bytes() const;  // taken from the pool

 private:
  static void give_back(void* bytes, size_t size, void* holder) noexcept;
  void put(char* bytes, size_t size);
  void* cut(size_t size);

  Context& context_;
  cudaStream_t stream_;  // orders the calls to the pool; never captured
  mutable std::mutex mutex_;
  std::map<char*, size_t> free_;  // address to bytes; neighbours are joined
  struct Segment {
    void* bytes;
    size_t size;
  };
  std::vector<Segment> segments_;
  struct Deferred {
    void* bytes;
    cudaStream_t stream;
  };
  std::vector<Deferred> deferred_;
};

}  // namespace halftape::cuda
