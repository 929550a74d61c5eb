// One object for each thread, so that using it costs no locked instruction.
#pragma once
#include <array>
#include <atomic>
#include <concepts>
#include <cstdint>
#include <mutex>
#include <vector>

namespace halftape {

/// The thread's T, made at the first call. Null while the thread ends: tensors may outlive it, in
/// other threads or as statics.
template <class T>
T* per_thread() {
  static constinit thread_local T* mine = nullptr;
  static constinit thread_local bool over = false;
  struct Owner {
    T value;
    Owner() { mine = &value; }
    ~Owner() {
      mine = nullptr;
      over = true;
    }
  };
  if (!mine && !over) {
    static thread_local Owner owner;
  }
  return mine;
}

/// N numbers that many threads raise and few read. Each `Tag` has counters of its own.
template <class Tag, size_t N = 1>
class Counter {
 public:
  /// Adds each number to its counter.
  static void add(std::convertible_to<int64_t> auto... n) {
    static_assert(sizeof...(n) == N);
    Share* const share = per_thread<Share>();
    size_t i = 0;
    if (share) [[likely]]
      // Only this thread writes it: no read-modify-write instruction is needed.
      (raise(share->values[i++], n), ...);
    else
      (left()[i++].fetch_add(n, std::memory_order_relaxed), ...);
  }
  static int64_t total(size_t i = 0) {
    const std::lock_guard lock(mutex());
    int64_t sum = left()[i].load(std::memory_order_relaxed);
    for (const Share* share : shares()) sum += share->values[i].load(std::memory_order_relaxed);
    return sum;
  }

 private:
  using Values = std::array<std::atomic<int64_t>, N>;
  static void raise(std::atomic<int64_t>& value, int64_t n) {
    value.store(value.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  struct Share {
    Values values{};
    Share() {
      const std::lock_guard lock(mutex());
      shares().push_back(this);
    }
    ~Share() {
      const std::lock_guard lock(mutex());
      for (size_t i = 0; i < N; ++i)
        left()[i].fetch_add(values[i].load(std::memory_order_relaxed), std::memory_order_relaxed);
      std::erase(shares(), this);
    }
  };
  // Never destroyed: a thread may end after statics are.
  static std::mutex& mutex() {
    static auto* m = new std::mutex;  // NOLINT
    return *m;
  }
  static std::vector<Share*>& shares() {
    static auto* all = new std::vector<Share*>;  // NOLINT
    return *all;
  }
  /// The counts of threads that have ended.
  static Values& left() {
    static auto* n = new Values{};  // NOLINT
    return *n;
  }
};

}  // namespace halftape
