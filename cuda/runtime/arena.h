// The memory of a captured step: addresses that stay, since replays use them again. What the step
// frees is used for what it allocates next; what outlives the step keeps the whole arena alive.
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
  /// Waits for all streams: nobody knows who still reads what outlived the step.
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  Context& context() const { return context_; }
  BufferPtr allocate(size_t bytes);
  /// Memory of the pool that the step let go while it was captured, when nothing may be given back.
  void free_later(void* bytes, void* stream) noexcept;
  void free_pinned_later(void* bytes) noexcept;
  /// The capture is over: gives it back, and waits until all of the arena is there.
  void settle();
  size_t bytes() const;  // taken from the pool

 private:
  static void give_back(void* bytes, size_t size, void* holder) noexcept;
  void put(char* bytes, size_t size);
  void* cut(size_t size);

  Context& context_;
  cudaStream_t stream_;  // in whose order the pool gives and takes; never captured
  mutable std::mutex mutex_;
  std::map<char*, size_t> free_;  // neighbours are joined
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
  std::vector<void*> deferred_pinned_;
};

}  // namespace halftape::cuda
