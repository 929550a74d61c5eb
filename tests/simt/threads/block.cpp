#include "threads/block.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "settings.h"
#include "threads/sanitizers.h"
#include "threads/shared_arrays.h"

namespace simt {

constinit thread_local Block* this_block = nullptr;

namespace {
alignas(1024) constinit thread_local unsigned char dyn_smem[kMaxDynamicShared] = {};

constexpr unsigned char kPoison = 0xFF;  // NaN in every floating-point type
constexpr std::size_t kCanary = 256;     // behind the dynamic shared memory that was asked for

struct Fault {  // thrown by a thread of the kernel
  std::string what;
};

std::uint32_t bit(int lane) { return std::uint32_t{1} << lane; }

std::string lanes_of(std::uint32_t mask) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%08x", mask);
  return text;
}
}  // namespace

unsigned char* dynamic_shared() { return dyn_smem; }

std::string Place::text() const {
  const char* slash = std::strrchr(file, '/');
  return std::string(slash ? slash + 1 : file) + ":" + std::to_string(line);
}

bool Place::same_file(const Place& other) const {
  return file == other.file || std::strcmp(file, other.file) == 0;
}

struct Block::Collective {
  std::uint32_t mask = 0, arrived = 0;
  Together together = nullptr;
  Place place{};
  void* arguments[kWarp] = {};
};

struct Block::Warp {
  std::vector<Collective> open;  // several, if the warp has diverged
  std::uint32_t alive = 0;
  Thread* queue[kWarp] = {};  // those that can go on
  unsigned head = 0, tail = 0;
};

// Kept from launch to launch, because mapping a thousand stacks takes longer than most kernels.
struct Block::Stacks {
  Fiber own;  // on which run() was called
  std::vector<std::unique_ptr<Fiber>> all;
  std::vector<Fiber*> idle;

  Fiber* fresh() {
    if (idle.empty()) {
      all.push_back(std::make_unique<Fiber>(&Block::fiber_main, all.size()));
      return all.back().get();
    }
    Fiber* fiber = idle.back();
    idle.pop_back();
    return fiber;
  }
};

Block::Stacks& Block::stacks() {
  static thread_local Stacks stacks;
  return stacks;
}

Block::Block(const Grid& grid, std::barrier<>* all_blocks)
    : grid_(grid),
      all_blocks_(all_blocks),
      size_(int(grid.threads.x * grid.threads.y * grid.threads.z)),
      threads_(size_),
      order_(size_),
      warps_((size_ + kWarp - 1) / kWarp),
      stacks_(stacks()),
      running_(&stacks_.own),
      random_(settings.seed) {
  const dim3 dim = grid.threads;
  uint3 index{};
  for (int i = 0; i < size_; ++i) {
    threads_[i].index = index;
    if (++index.x == dim.x) index.x = 0, ++index.y;
    if (index.y == dim.y) index.y = 0, ++index.z;
    threads_[i].number = i;
    order_[i] = settings.order == Order::Reverse ? size_ - 1 - i : i;
  }
}

Block::~Block() = default;

bool Block::on_guard_page(const void* address) const {
  return std::any_of(stacks_.all.begin(), stacks_.all.end(),
                     [=](const auto& fiber) { return fiber->guards(address); });
}

// ---------------------------------------------------------------- who runs next

void Block::jump(Fiber* to) {
  Fiber* from = running_;
  if (from == to) return;
  running_ = to;
  from->switch_to(*to);
}

void Block::fail(const std::string& what) { throw Fault{what}; }

Fiber* Block::next_fiber() {
  const bool random = settings.order == Order::Random;
  if (started_ < size_ && (!ready_ || (random && random_.below(4) == 0))) return stacks_.fresh();
  if (!ready_) return &stacks_.own;
  int w;
  if (random)
    w = upcoming_ < 0 ? random_.one_of(ready_) : upcoming_;
  else
    w = settings.order == Order::Reverse ? 31 - std::countl_zero(ready_) : std::countr_zero(ready_);
  Warp& warp = warps_[w];
  current_ = warp.queue[warp.head++ % kWarp];
  current_->state = State::Running;
  if (warp.head == warp.tail) ready_ &= ~bit(w);
  upcoming_ = -1;
  if (random && ready_) {  // chosen now, so that what it needs is in the cache when its turn comes
    upcoming_ = random_.one_of(ready_);
    __builtin_prefetch(warps_[upcoming_].queue[warps_[upcoming_].head % kWarp]->fiber);
  }
  return current_->fiber;
}

void Block::make_ready(int w, std::uint32_t lanes) {
  int chosen[kWarp], count = 0;
  for (int i = 0; i < kWarp; ++i)
    if (lanes & bit(i)) chosen[count++] = i;
  if (settings.order == Order::Reverse) std::reverse(chosen, chosen + count);
  if (settings.order == Order::Random) random_.shuffle(chosen, count);
  Warp& warp = warps_[w];
  for (int i = 0; i < count; ++i) {
    Thread& thread = threads_[w * kWarp + chosen[i]];
    thread.state = State::Ready;
    warp.queue[warp.tail++ % kWarp] = &thread;
  }
  if (count) ready_ |= bit(w), upcoming_ = -1;
}

void Block::fiber_main() {
  Fiber::arrived(this_block->stacks_.own);
  start_threads(this_block->running_);
}

// The fiber that next_fiber() chose starts thread after thread until another fiber can go on. If a
// thread waits, its fiber waits.
void Block::start_threads(Fiber* self) {
  for (;;) {
    Block& b = *this_block;  // another one in every launch
    do {
      const int number = b.order_[b.started_++];
      Thread& thread = b.threads_[number];
      thread.fiber = self;
      thread.state = State::Running;
      b.current_ = &thread;
      try {
        b.grid_.body();
        b.thread_exits(number);
      } catch (const Fault& fault) {
        b.fault_ = fault.what;
      }
      if (!b.fault_.empty()) b.jump(&b.stacks_.own);  // for good
    } while (b.started_ < b.size_ && !b.ready_);
    b.stacks_.idle.push_back(self);
    b.jump(b.next_fiber());
  }
}

void Block::thread_exits(int number) {
  const int w = number / kWarp;
  threads_[number].state = State::Exited;
  --alive_;
  warps_[w].alive &= ~bit(number % kWarp);
  if (at_barrier_ && at_barrier_ == alive_) open_barrier();
  for (Collective& c : warps_[w].open)
    if (c.arrived) complete(w, c, -1);
}

// ---------------------------------------------------------------- barriers and collectives

void Block::open_barrier() {
  at_barrier_ = 0;
  counted_ = std::exchange(votes_, 0);
  for (int w = 0; w < int(warps_.size()); ++w) {
    std::uint32_t lanes = 0;
    for (int i = 0; i < kWarp && w * kWarp + i < size_; ++i)
      if (threads_[w * kWarp + i].state == State::AtBarrier) lanes |= bit(i);
    make_ready(w, lanes);
  }
}

void Block::divergent_barrier(Place place) {
  fail("divergent __syncthreads: some threads wait at " + barrier_place_.text() + ", others at " +
       place.text());
}

int Block::sync_threads(Place place, bool vote) {
  if (at_barrier_ == 0)
    barrier_place_ = place;
  else if (!(place == barrier_place_))
    divergent_barrier(place);
  Thread* self = current_;
  self->state = State::AtBarrier;
  self->place = place;
  votes_ += vote;
  if (++at_barrier_ == alive_) open_barrier();
  jump(next_fiber());
  return counted_;  // the next barrier opens only when all have read this
}

void Block::sync_grid(Place place) {
  if (!all_blocks_)
    fail("grid barrier at " + place.text() + " in a launch that is not cooperative");
  sync_threads(place);
  if (current_ == &threads_[0]) all_blocks_->arrive_and_wait();
  sync_threads(place);
}

void Block::bad_mask(std::uint32_t mask, Place place) {
  const int lane = current_->number % kWarp;
  fail("warp collective at " + place.text() +
       (mask & bit(lane)
            ? ": the mask " + lanes_of(mask) + " names lanes that the block does not have"
            : ": lane " + std::to_string(lane) + " is not in its own mask " + lanes_of(mask)));
}

void Block::crossed(const Collective& c, std::uint32_t mask, Place place) {
  fail("warp collective at " + place.text() + ": lanes " + lanes_of(c.arrived) + " of the mask " +
       lanes_of(mask) + " wait at another collective, " + c.place.text() + " with mask " +
       lanes_of(c.mask));
}

void Block::collective(std::uint32_t mask, void* argument, Together together, Place place) {
  const int number = current_->number, w = number / kWarp, lane = number % kWarp;
  const int lanes = std::min(kWarp, size_ - w * kWarp);
  if (!(mask & bit(lane)) || (lanes < kWarp && mask >> lanes && mask != ~0u)) bad_mask(mask, place);
  Collective *mine = nullptr, *unused = nullptr;
  for (Collective& c : warps_[w].open) {
    if (!c.arrived)
      unused = &c;
    else if (c.mask == mask && c.together == together)
      mine = &c;
    else if (c.arrived & mask && c.mask & bit(lane))  // they wait for this lane, it for them
      crossed(c, mask, place);
  }
  if (!mine) mine = unused ? unused : &warps_[w].open.emplace_back();
  mine->mask = mask;
  mine->together = together;
  mine->place = place;
  mine->arguments[lane] = argument;
  mine->arrived |= bit(lane);
  if (complete(w, *mine, lane)) return;
  current_->state = State::InCollective;
  current_->place = place;
  jump(next_fiber());
}

bool Block::complete(int w, Collective& c, int running_lane) {
  if (c.arrived != (c.mask & warps_[w].alive)) return false;
  c.together(c.arguments, c.arrived);
  const std::uint32_t others = running_lane < 0 ? c.arrived : c.arrived & ~bit(running_lane);
  c.arrived = 0;
  make_ready(w, others);
  return true;
}

// ---------------------------------------------------------------- one block after another

void Block::run(uint3 index) {
  index_ = index;
  started_ = at_barrier_ = votes_ = 0;
  ready_ = 0;
  upcoming_ = -1;
  alive_ = size_;
  const std::size_t bytes = grid_.shared_bytes;
  const std::size_t canary = std::min(kCanary, kMaxDynamicShared - bytes);
  std::memset(dyn_smem, kPoison, bytes + canary);
  forbid(dyn_smem + bytes, kMaxDynamicShared - bytes);
  poison_shared_arrays(kPoison);

  for (Thread& thread : threads_) thread.state = State::New;
  if (settings.order == Order::Random) random_.shuffle(order_.data(), size_);
  for (int w = 0; w < int(warps_.size()); ++w) {
    const int lanes = std::min(kWarp, size_ - w * kWarp);
    warps_[w].alive = lanes == kWarp ? ~0u : bit(lanes) - 1;
    warps_[w].head = warps_[w].tail = 0;
    warps_[w].open.resize(2);
    for (Collective& c : warps_[w].open) c.arrived = 0;
  }

  while (fault_.empty()) {
    Fiber* next = next_fiber();
    if (next == &stacks_.own) break;
    jump(next);
  }
  if (fault_.empty() && alive_) fault_ = deadlock();
  allow(dyn_smem, kMaxDynamicShared);
  check_shared_canary();
  if (!fault_.empty()) {  // the stacks of unfinished threads
    stacks_.all.clear();
    stacks_.idle.clear();
  }
}

void Block::check_shared_canary() {
  const std::size_t bytes = grid_.shared_bytes;
  const std::size_t canary = std::min(kCanary, kMaxDynamicShared - bytes);
  for (std::size_t i = bytes; i < bytes + canary && fault_.empty(); ++i)
    if (dyn_smem[i] != kPoison)
      fault_ = "the kernel wrote byte " + std::to_string(i) + " of its " + std::to_string(bytes) +
               " bytes of dynamic shared memory";
}

std::string Block::deadlock() const {
  std::string text = "deadlock:";
  int named = 0, waiting = 0;
  for (const Thread& thread : threads_) {
    if (thread.state != State::AtBarrier && thread.state != State::InCollective) continue;
    if (++waiting; named == 4) continue;
    ++named;
    text += " thread " + std::to_string(&thread - threads_.data()) + " waits in " +
            (thread.state == State::AtBarrier ? "__syncthreads" : "a warp collective") + " at " +
            thread.place.text() + ";";
  }
  return text + " " + std::to_string(waiting) + " threads in all";
}

std::string run(const Grid& grid) {
  const unsigned nx = grid.blocks.x, ny = grid.blocks.y;
  const std::uint64_t count = std::uint64_t{nx} * ny * grid.blocks.z;
  const auto index = [nx, ny](std::uint64_t i) {
    return uint3{unsigned(i % nx), unsigned(i / nx % ny), unsigned(i / (std::uint64_t{nx} * ny))};
  };
  const std::size_t workers =
      grid.cooperative ? count : std::min<std::uint64_t>(count, std::max(settings.os_threads, 1));

  std::barrier<> all_blocks{std::ptrdiff_t(workers)};
  std::atomic<std::uint64_t> next{0};
  std::mutex mutex;
  std::string fault;
  const auto work = [&] {
    Block* const outer = this_block;
    Block mine(grid, grid.cooperative ? &all_blocks : nullptr);
    this_block = &mine;
    for (std::uint64_t i; mine.fault().empty() && (i = next++) < count;)
      mine.run(index(settings.order == Order::Reverse ? count - 1 - i : i));
    this_block = outer;
    all_blocks.arrive_and_drop();
    const std::lock_guard lock(mutex);
    if (fault.empty()) fault = mine.fault();
  };
  if (workers == 1) {
    work();
  } else {
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < workers; ++i) threads.emplace_back(work);
    for (std::thread& thread : threads) thread.join();
  }
  return fault;
}

}  // namespace simt
