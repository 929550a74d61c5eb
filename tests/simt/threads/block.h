// One block of a kernel. Its threads are fibers of one OS thread. A fiber runs until a barrier or a
// warp collective, then the next one that can run; a kernel without synchronisation needs no
// switch. One warp runs as far as it can before another does, so that a missing barrier shows.
#pragma once
#include <cuda_runtime_api.h>

#include <barrier>
#include <bit>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "threads/fiber.h"

namespace simt {

inline constexpr int kWarp = 32;
inline constexpr std::size_t kMaxDynamicShared = 232448;  // 227 KiB

/// A place in a kernel's source; as a default argument it is the caller's.
struct Place {
  const char* file;
  int line;
  static constexpr Place here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
  bool operator==(const Place& other) const { return line == other.line && same_file(other); }
  std::string text() const;  // "kernels.cu:12"

 private:
  bool same_file(const Place& other) const;
};

/// A launched kernel, whose threads run body().
struct Grid {
  dim3 blocks, threads;
  std::size_t shared_bytes = 0;
  bool cooperative = false;
  std::function<void()> body;
};

/// Runs every block of a grid; returns the kernel's fault, or nothing.
std::string run(const Grid& grid);

/// SplitMix64: Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators". Asked at
/// every switch between threads.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint32_t below(std::uint32_t limit) {
    std::uint64_t x = state_ += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return static_cast<std::uint32_t>(((x ^ x >> 31) >> 32) * limit >> 32);
  }
  /// The number of one of the bits that are set.
  int one_of(std::uint32_t bits) {
    const int first = int(below(32));
    return (first + std::countr_zero(std::rotr(bits, first))) % 32;
  }
  void shuffle(int* values, int count) {
    for (int i = count - 1; i > 0; --i)
      std::swap(values[i], values[below(static_cast<std::uint32_t>(i) + 1)]);
  }

 private:
  std::uint64_t state_;
};

/// The work of a collective when its last lane has arrived.
using Together = void (*)(void** argument_of_lane, std::uint32_t lanes);

class Block {
 public:
  /// `all_blocks`: the barrier of a cooperative grid, else null.
  Block(const Grid& grid, std::barrier<>* all_blocks);
  ~Block();
  void run(uint3 index);
  const std::string& fault() const { return fault_; }

  // What a kernel sees.
  uint3 thread_index() const { return current_->index; }
  uint3 block_index() const { return index_; }
  dim3 block_dim() const { return grid_.threads; }
  dim3 grid_dim() const { return grid_.blocks; }
  int lane() const { return current_->number % kWarp; }
  /// Returns how many threads came with a vote.
  int sync_threads(Place place, bool vote = false);
  void sync_grid(Place place);
  /// Waits for the lanes in `mask` that have not exited; the last to arrive runs `together` for
  /// all.
  void collective(std::uint32_t mask, void* argument, Together together, Place place);
  /// Ends the kernel with this message.
  [[noreturn]] void fail(const std::string& what);
  bool on_guard_page(const void* address) const;

 private:
  enum class State : std::uint8_t { New, Running, Ready, AtBarrier, InCollective, Exited };
  struct Thread {
    uint3 index{};
    int number = 0;
    State state = State::New;
    Fiber* fiber = nullptr;
    Place place{};  // where it waits
  };
  struct Collective;
  struct Warp;
  struct Stacks;

  static Stacks& stacks();
  static void fiber_main();
  static void start_threads(Fiber* self);
  Fiber* next_fiber();
  void jump(Fiber* to);
  void make_ready(int warp, std::uint32_t lanes);
  void open_barrier();
  bool complete(int warp, Collective& c, int running_lane);
  // Apart, so that what waits in a fiber has a small frame.
  [[noreturn, gnu::noinline]] void divergent_barrier(Place place);
  [[noreturn, gnu::noinline]] void bad_mask(std::uint32_t mask, Place place);
  [[noreturn, gnu::noinline]] void crossed(const Collective& c, std::uint32_t mask, Place place);
  void thread_exits(int number);
  void check_shared_canary();
  std::string deadlock() const;

  const Grid& grid_;
  std::barrier<>* all_blocks_;
  uint3 index_{};
  int size_;         // threads
  int started_ = 0;  // of order_
  int alive_ = 0;    // have not exited
  int at_barrier_ = 0;
  int votes_ = 0, counted_ = 0;  // at the barrier, and at the one before
  Place barrier_place_{};
  Thread* current_ = nullptr;
  std::vector<Thread> threads_;
  std::vector<int> order_;  // in which threads start
  std::vector<Warp> warps_;
  std::uint32_t ready_ = 0;  // bit w: warp w has threads that can go on
  Stacks& stacks_;           // of this OS thread
  Fiber* running_;
  Random random_;
  int upcoming_ = -1;  // at random: the warp to go on next; −1: not chosen yet
  std::string fault_;
};

/// The block this OS thread runs.
extern constinit thread_local Block* this_block;

/// The dynamic shared memory of the block, which a kernel for nvcc declares as
/// `extern __shared__ __align__(16) unsigned char dyn_smem[]`. A function, since that declaration
/// would be of another variable in every namespace.
unsigned char* dynamic_shared();

}  // namespace simt
