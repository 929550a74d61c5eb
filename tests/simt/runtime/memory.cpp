#include "runtime/memory.h"

#include <execinfo.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "settings.h"
#include "threads/block.h"
#include "threads/sanitizers.h"

namespace simt {
namespace {

constexpr unsigned char kPoison = 0xFF;                     // NaN in every floating-point type
constexpr std::size_t kRange = std::size_t{64} << 30;       // of addresses
constexpr std::size_t kRedZone = DeviceMemory::kAlignment;  // at least, behind every allocation
constexpr std::size_t kQuarantine = std::size_t{4} << 20;   // freed bytes that are not reused yet
constexpr std::size_t kSmallFill = 4096;                    // bytes
// A huge page, where the system has them: to protect as many bytes in small ones takes forty times
// as long.
constexpr std::size_t kPage = std::size_t{2} << 20;

std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

/// Bytes of the range that an allocation takes.
std::size_t room_for(std::size_t size) {
  return round_up(std::max<std::size_t>(size, 1), DeviceMemory::kAlignment) + kRedZone;
}

/// The first of these bytes that is no longer poison; `size` if they all are.
[[maybe_unused]] std::size_t unpoisoned(const char* bytes, std::size_t size) {
  const auto poison = static_cast<char>(kPoison);
  if (size == 0 || (bytes[0] == poison && std::memcmp(bytes, bytes + 1, size - 1) == 0))
    return size;
  return std::size_t(std::find_if(bytes, bytes + size, [=](char c) { return c != poison; }) -
                     bytes);
}

[[maybe_unused]] struct sigaction before;  // whoever handled faults before us

[[maybe_unused]] void on_fault(int signal, siginfo_t* info, void* context) {
  const void* address = info->si_addr;
  const bool overflow = this_block && this_block->on_guard_page(address);
  const bool ours = DeviceMemory::memory().contains(address);
  if (!ours && !overflow) {
    if (before.sa_flags & SA_SIGINFO) return before.sa_sigaction(signal, info, context);
    if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
      return before.sa_handler(signal);
    sigaction(SIGSEGV, &before, nullptr);  // the instruction faults again, now for good
    return;
  }
  char text[400];
  if (overflow)
    std::snprintf(text, sizeof text, "simt: a kernel's thread overflowed its stack\n");
  else
    std::snprintf(text, sizeof text, "simt: %s touched device memory at %p: %s\n",
                  this_block ? "a kernel" : "host code", address,
                  DeviceMemory::memory().describe(address).c_str());
  [[maybe_unused]] const auto written = write(STDERR_FILENO, text, std::strlen(text));
  void* frames[32];
  backtrace_symbols_fd(frames, backtrace(frames, 32), STDERR_FILENO);
  std::abort();
}

/// On a stack of its own, for a kernel's thread may have none left.
void handle_faults() {
#ifndef SIMT_ASAN  // which has its own report
  stack_t now{};
  if (sigaltstack(nullptr, &now) == 0 && now.ss_flags & SS_DISABLE) {
    static char stack[1 << 16];
    stack_t mine{};
    mine.ss_sp = stack;
    mine.ss_size = sizeof stack;
    sigaltstack(&mine, nullptr);
  }
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  struct sigaction current {};
  sigaction(SIGSEGV, nullptr, &current);
  if (current.sa_sigaction == on_fault) return;
  before = current;
  sigaction(SIGSEGV, &action, nullptr);
#endif
}

}  // namespace

DeviceMemory& DeviceMemory::memory() {
  static auto* one = new DeviceMemory;  // never destroyed: the last free may come from a static
  return *one;
}

DeviceMemory::DeviceMemory() {
  void* mapped =
      mmap(nullptr, kRange + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    std::perror("simt: no addresses for the device's memory");
    std::abort();
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(mapped);
  base_ = static_cast<char*>(mapped) + (round_up(begin, kPage) - begin);
  madvise(base_, kRange, MADV_HUGEPAGE);
  used_ = kRedZone;
  forbid(base_, kRedZone);
}

void DeviceMemory::open() {
  changed_ = true;
  if (open_++ || !protected_) return;
  mprotect(base_, round_up(used_, kPage), PROT_READ | PROT_WRITE);
  protected_ = false;
}

void DeviceMemory::close() {
  if (--open_ || settings.protect == Protect::Never) return;
  // It takes as long as there are pages, which may be small ones.
  const std::size_t often = used_ >> 18;
  if (settings.protect == Protect::Sometimes && ++left_open_ < often) return;
  left_open_ = 0;
  handle_faults();  // each time: test frameworks install their own
  mprotect(base_, round_up(used_, kPage), PROT_NONE);
  protected_ = true;
}

void DeviceMemory::permit(Range range, int protection) const {
  if (!contains(range.begin) || range.size == 0) return;
  const std::size_t begin = std::size_t(static_cast<const char*>(range.begin) - base_);
  const std::size_t first = begin / kPage * kPage, end = round_up(begin + range.size, kPage);
  mprotect(at(first), end - first, protection);
}

// The rig's own reading and writing opens no more pages than it needs.
template <class F>
void DeviceMemory::touching(Range a, Range b, F&& f) {
  const bool closed = protected_;
  if (closed) permit(a, PROT_READ | PROT_WRITE), permit(b, PROT_READ | PROT_WRITE);
  f();
  if (closed) permit(a, PROT_NONE), permit(b, PROT_NONE);
}

void DeviceMemory::copy(void* to, const void* from, std::size_t size) {
  if (counts_only()) {
    if (!contains(to)) std::memset(to, 0, size);
    return;
  }
  touching({to, size}, {from, size}, [=] { std::memmove(to, from, size); });
}
void DeviceMemory::set(void* to, int value, std::size_t size) {
  if (counts_only() && size > kSmallFill) return;
  touching({to, size}, {}, [=] { std::memset(to, value, size); });
}
void DeviceMemory::poison(void* address, std::size_t size) {
  touching({address, size}, {}, [=] { std::memset(address, kPoison, size); });
}

// The smallest piece that is large enough, of what was freed long ago, else what was never used.
// Offset 0 stays a red zone.
std::size_t DeviceMemory::take(std::size_t room) {
  if (const auto it = free_by_size_.lower_bound({room, 0}); it != free_by_size_.end()) {
    const auto [bytes, offset] = *it;
    erase_free(free_.find(offset));
    if (bytes > room) insert_free(offset + room, bytes - room);
    return offset;
  }
  if (room > kRange - used_) return 0;
  const std::size_t offset = used_, before_pages = round_up(used_, kPage);
  used_ += room;
  if (!protected_)
    mprotect(at(before_pages), round_up(used_, kPage) - before_pages, PROT_READ | PROT_WRITE);
  return offset;
}

void* DeviceMemory::allocate(std::size_t size, int device, CUmemPoolHandle_st* pool) {
  const std::size_t room = room_for(size);
  if (room < size) return nullptr;
  std::size_t offset = take(room);
  while (!offset && !dead_.empty()) {
    retire_oldest();
    offset = take(room);
  }
  if (!offset) return nullptr;
  const bool poisoned = !counts_only();
  live_.insert({offset, {.size = size, .device = device, .pool = pool, .poisoned = poisoned}});
  live_bytes_ += size;
  allow(at(offset), room);
  if (poisoned) poison(at(offset), room);
  forbid(at(offset), room);
  allow(at(offset), size);
  return at(offset);
}

void DeviceMemory::release(void* address) {
  const std::size_t offset = std::size_t(static_cast<char*>(address) - base_);
  const Allocation a = live_.at(offset);
  const std::size_t size = a.size;
  check_after(offset, a, "found when it was freed");
  live_.erase(offset);
  live_bytes_ -= size;
  allow(at(offset), size);
  if (a.poisoned) poison(address, size);
  forbid(at(offset), size);
  dead_.push_back({offset, size, room_for(size), a.poisoned});
  dead_bytes_ += size;
  while (dead_bytes_ > kQuarantine) retire_oldest();
}

void DeviceMemory::begin_life(void* address) {
  const Allocation& a = *find(address);
  allow(address, a.size);
  if (a.poisoned) poison(address, a.size);
}

void DeviceMemory::end_life(void* address) {
  const Allocation& a = *find(address);
  allow(address, a.size);
  if (a.poisoned) poison(address, a.size);
  forbid(address, a.size);
}

void DeviceMemory::retire_oldest() {
  const Dead dead = dead_.front();
  dead_.pop_front();
  dead_bytes_ -= dead.size;
#ifndef SIMT_ASAN  // which has reported it already, with the line
  std::size_t at_byte = dead.room;
  if (dead.poisoned)
    touching({at(dead.offset), dead.room}, {},
             [&] { at_byte = unpoisoned(at(dead.offset), dead.room); });
  if (at_byte != dead.room)
    report("byte " + std::to_string(at_byte) + " of a freed allocation of " +
           std::to_string(dead.size) + " bytes was written after it was freed");
#endif
  // Joined with the free neighbours.
  std::size_t offset = dead.offset, bytes = dead.room;
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && offset + bytes == next->first) {
    bytes += next->second;
    next = erase_free(next);
  }
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      offset = previous->first;
      bytes += previous->second;
      erase_free(previous);
    }
  }
  insert_free(offset, bytes);
}

void DeviceMemory::insert_free(std::size_t offset, std::size_t bytes) {
  free_[offset] = bytes;
  free_by_size_.insert({bytes, offset});
}

DeviceMemory::Free::iterator DeviceMemory::erase_free(Free::iterator it) {
  free_by_size_.erase({it->second, it->first});
  return free_.erase(it);
}

Allocation* DeviceMemory::find(const void* address) {
  if (!contains(address)) return nullptr;
  const auto it = live_.find(std::size_t(static_cast<const char*>(address) - base_));
  return it == live_.end() ? nullptr : &it->second;
}

const Allocation* DeviceMemory::around(const void* address) const {
  if (!contains(address)) return nullptr;
  const std::size_t offset = std::size_t(static_cast<const char*>(address) - base_);
  const auto after = live_.upper_bound(offset);
  if (after == live_.begin()) return nullptr;
  const auto& [begin, allocation] = *std::prev(after);
  return offset - begin < allocation.size ? &allocation : nullptr;
}

bool DeviceMemory::holds(const void* address, std::size_t size) {
  if (!contains(address)) return false;
  const std::size_t offset = std::size_t(static_cast<const char*>(address) - base_);
  auto it = live_.upper_bound(offset);
  if (it == live_.begin()) return false;
  --it;
  const std::size_t from = offset - it->first;
  return from <= it->second.size && size <= it->second.size - from;
}

bool DeviceMemory::contains(const void* address) const {
  return address >= base_ && address < base_ + kRange;
}

// AddressSanitizer sees the write itself; here it is found afterwards, by what it left.
void DeviceMemory::check_after([[maybe_unused]] std::size_t offset,
                               [[maybe_unused]] const Allocation& of,
                               [[maybe_unused]] const char* when) {
#ifndef SIMT_ASAN
  if (!of.poisoned) return;
  const std::size_t size = of.size, zone = room_for(size) - size;
  std::size_t at_byte = zone;
  touching({at(offset + size), zone}, {}, [&] {
    at_byte = unpoisoned(at(offset + size), zone);
    if (at_byte != zone) std::memset(at(offset + size), kPoison, zone);
  });
  if (at_byte != zone)
    report("a kernel or copy wrote byte " + std::to_string(size + at_byte) +
           " of an allocation of " + std::to_string(size) + " bytes (" + when + ")");
#endif
}

void DeviceMemory::check() {
  if (!changed_) return;
  {
    const Access access;
    for (const auto& [offset, allocation] : live_)
      check_after(offset, allocation, "found at a synchronisation");
  }
  changed_ = false;
}

std::string DeviceMemory::describe(const void* address) const {
  const std::size_t offset = std::size_t(static_cast<const char*>(address) - base_);
  auto it = live_.upper_bound(offset);
  if (it != live_.begin()) {
    --it;
    const std::size_t from = offset - it->first;
    const std::string of = "an allocation of " + std::to_string(it->second.size) + " bytes";
    if (from < it->second.size) return std::to_string(from) + " bytes into " + of;
    if (from < room_for(it->second.size))
      return std::to_string(from - it->second.size) + " bytes behind the end of " + of;
  }
  for (const Dead& d : dead_)
    if (offset >= d.offset && offset < d.offset + d.size)
      return std::to_string(offset - d.offset) + " bytes into a freed allocation of " +
             std::to_string(d.size) + " bytes";
  return "nothing is allocated there";
}

}  // namespace simt
