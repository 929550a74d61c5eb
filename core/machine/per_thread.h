// One object for each thread, so that using it costs no locked instruction.
#pragma once
#include <atomic>
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

/// A number that many threads raise and few read. Each `Tag` has a counter of its own.
template <class Tag>
class Counter {
 public:
  static void add(int64_t n) {
    if (Share* share = per_thread<Share>()) [[likely]]
      // Only this thread writes it: no read-modify-write instruction is needed.
      share->value.store(share->value.load(std::memory_order_relaxed) + n,
                         std::memory_order_relaxed);
    else
      left().fetch_add(n, std::memory_order_relaxed);
  }
  static int64_t total() {
    const std::lock_guard lock(mutex());
    int64_t sum = left().load(std::memory_order_relaxed);
    for (const Share* share : shares()) sum += share->value.load(std::memory_order_relaxed);
    return sum;
  }

 private:
  struct Share {
    std::atomic<int64_t> value{0};
    Share() {
      const std::lock_guard lock(mutex());
      shares().push_back(this);
    }
    ~Share() {
      const std::lock_guard lock(mutex());
      left().fetch_add(value.load(std::memory_order_relaxed), std::memory_order_relaxed);
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
  static std::atomic<int64_t>& left() {
    static auto* n = new std::atomic<int64_t>(0);  // NOLINT
    return *n;
  }
};

}  // namespace halftape
