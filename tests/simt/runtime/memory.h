// The memory of the simulated devices: a range of addresses that host code can access only while
// the rig runs a kernel or a copy. Fresh and freed memory is poisoned, and between two allocations
// there are bytes that belong to neither.
#pragma once
#include <cstddef>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>

struct CUmemPoolHandle_st;

namespace simt {

/// Prints a message and keeps it for reports().
void report(const std::string& what);

struct Allocation {
  std::size_t size;
  int device;
  CUmemPoolHandle_st* pool;  // null: cudaMalloc
  bool of_graph = false;     // held by a graph that allocates it
  bool free_enqueued = false;
  bool poisoned = true;  // false: no byte of it was touched when it was allocated
};

class DeviceMemory {
 public:
  static constexpr std::size_t kAlignment = 256;  // and no more: as cudaMalloc promises

  /// While one lives, all device memory can be accessed, as a kernel needs it.
  class [[nodiscard]] Access {
   public:
    Access() { memory().open(); }
    ~Access() { memory().close(); }
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;
  };

  static DeviceMemory& memory();

  /// Null when the addresses are used up. Poisoned, but while counts_only().
  void* allocate(std::size_t size, int device, CUmemPoolHandle_st* pool);
  /// Poisons it; its addresses come back only after a while. `address` must be find()able.
  void release(void* address);
  /// As memmove and memset do; either side may be the host's. While counts_only(), a copy gives the
  /// host zeros, and only small fills are carried out: those of counters, which outlive the
  /// setting.
  void copy(void* to, const void* from, std::size_t size);
  void set(void* to, int value, std::size_t size);
  /// Poison, as at the moments when a stream gets to an allocation or a free of it.
  void begin_life(void* address);
  void end_life(void* address);

  /// The allocation that begins at this address; null for none.
  Allocation* find(const void* address);
  /// The live allocation that this address lies in; null for none.
  const Allocation* around(const void* address) const;
  /// Whether [address, address + size) lies in one live allocation.
  bool holds(const void* address, std::size_t size);
  bool contains(const void* address) const;
  void check();
  std::size_t live_bytes() const { return live_bytes_; }
  std::size_t live_allocations() const { return live_.size(); }
  /// "64 bytes into an allocation of 4096 bytes"
  std::string describe(const void* address) const;

 private:
  struct Dead {
    std::size_t offset, size, room;
    bool poisoned;
  };

  using Free = std::map<std::size_t, std::size_t>;  // offset -> bytes, red zones included

  struct Range {
    const void* begin;
    std::size_t size;
  };

  DeviceMemory();
  void open();
  void close();
  template <class F>
  void touching(Range a, Range b, F&& f);
  void permit(Range range, int protection) const;
  std::size_t take(std::size_t room);
  void poison(void* address, std::size_t size);
  void check_after(std::size_t offset, const Allocation& of, const char* when);
  void retire_oldest();
  void insert_free(std::size_t offset, std::size_t bytes);
  Free::iterator erase_free(Free::iterator it);
  char* at(std::size_t offset) const { return base_ + offset; }

  char* base_ = nullptr;
  std::size_t used_ = 0;  // below here anything was ever allocated
  int open_ = 0;
  bool protected_ = true;
  bool changed_ = false;                    // may a kernel have written since the last check()?
  std::size_t left_open_ = 0;               // times, since it was closed last
  std::map<std::size_t, Allocation> live_;  // by offset
  Free free_;
  std::set<std::pair<std::size_t, std::size_t>> free_by_size_;  // bytes, offset
  std::deque<Dead> dead_;  // the latest to be freed; poisoned, not yet reused
  std::size_t dead_bytes_ = 0, live_bytes_ = 0;
};

}  // namespace simt
