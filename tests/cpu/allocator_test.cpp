// Memory of the CPU: aligned, reused, counted, and refused in words when there is not that much.
#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "halftape/core/array.h"
#include "halftape/core/machine/build_flags.h"
#include "halftape/core/memory_stats.h"
#include "halftape/cpu/runtime/allocator.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/sanitizers.h"

using namespace halftape;
using testing::message;

namespace {

// AddressSanitizer wants every block to be new.
constexpr bool reuses = !kAddressSanitizer;

}  // namespace

TEST_CASE("blocks of every size start at a multiple of 64 bytes and hold what was asked for") {
  std::vector<BufferPtr> held;
  std::set<std::pair<char*, char*>> ranges;
  for (size_t size = 0; size < 5000; size += size < 600 ? 1 : 61)
    held.push_back(cpu::allocate(size));
  for (size_t size = 5000; size < 3000000; size = size * 5 / 4 + 1)
    held.push_back(cpu::allocate(size));
  for (const BufferPtr& b : held) {
    auto* p = static_cast<char*>(b->bytes());
    CHECK(reinterpret_cast<uintptr_t>(p) % 64 == 0);
    std::memset(p, 1, b->size());
    ranges.insert({p, p + b->size()});
  }
  const char* end = nullptr;
  for (const auto& [from, to] : ranges) {
    CHECK(from >= end);  // nobody else's bytes
    end = to;
  }
  CHECK(ranges.size() == held.size());
}

TEST_CASE("a block is at least as large as asked for and not much larger") {
  for (size_t size = 0; size < 100000; size = size * 9 / 8 + 1) {
    CAPTURE(size);
    const BufferPtr b = cpu::allocate(size);
    CHECK(b->size() >= size);
    CHECK(b->size() <= std::max(size * 5 / 4 + 64, size_t{64}));
    CHECK(b->device() == Device(kCPU));
    CHECK(b->version() == 0);
  }
}

TEST_CASE("freed memory is used again for what has the same rounded size") {
  if (!reuses) return;
  std::thread([] {  // whose cache nobody has filled
    for (const size_t size :
         {size_t{1}, size_t{64}, size_t{65}, size_t{1000}, size_t{4097}, size_t{1000000}}) {
      CAPTURE(size);
      const void* first = cpu::allocate(size)->bytes();
      const BufferPtr again = cpu::allocate(size), other = cpu::allocate(size);
      CHECK(again->bytes() == first);
      CHECK(other->bytes() != first);
    }
  })
      .join();
  // A block is never given to someone for whom it is too small.
  for (size_t size = 1; size < 70000; size = size * 17 / 16 + 1) {
    const BufferPtr small = cpu::allocate(size);
    const size_t room = small->size();
    const BufferPtr next = cpu::allocate(room + 1);
    CHECK(next->size() > room);
  }
}

TEST_CASE("sizes that nobody asks for any more do not keep those in use out of the cache") {
  if (!reuses) return;
  {
    std::vector<BufferPtr> many;  // more than a thread keeps
    for (int i = 0; i < 100; ++i) many.push_back(cpu::allocate(20000));
  }
  const void* first = cpu::allocate(3000)->bytes();
  CHECK(cpu::allocate(3000)->bytes() == first);
}

TEST_CASE("large blocks that lie idle go back, and those in use stay at hand") {
  if (!reuses) return;
  cpu::empty_cache();
  const int64_t before = cpu::memory_reserved();
  {
    std::vector<BufferPtr> once;  // of sizes that nobody asks for any more
    for (int i = 0; i < 20; ++i) once.push_back(cpu::allocate(size_t{3} << 20));
    for (int i = 0; i < 9; ++i) once.push_back(cpu::allocate(size_t{1} << 20));
  }
  CHECK(cpu::memory_reserved() - before == (69 << 20));
  const auto step = [] {  // three blocks at a time
    const BufferPtr a = cpu::allocate(size_t{1} << 20), b = cpu::allocate(size_t{1} << 20),
                    c = cpu::allocate(size_t{1} << 20);
  };
  for (int i = 0; i < 16 * 69 / 3; ++i) step();
  CHECK(cpu::memory_reserved() - before == (69 << 20));
  for (int i = 0; i < 2 * 16 * 69 / 3; ++i) step();
  CHECK(cpu::memory_reserved() - before == (3 << 20));
  for (int i = 0; i < 1000; ++i) step();
  CHECK(cpu::memory_reserved() - before == (3 << 20));
  cpu::empty_cache();
  CHECK(cpu::memory_reserved() == before);
}

TEST_CASE("what is reserved holds the small blocks, too, of any thread, until it ends") {
  if (!reuses) return;
  cpu::empty_cache();
  const int64_t before = cpu::memory_reserved();
  std::thread([&] {
    const BufferPtr b = cpu::allocate(1000);
    CHECK(cpu::memory_reserved() > before + 1000);
    CHECK(cpu::memory_reserved() < before + 1500);
    { const BufferPtr gone = cpu::allocate(20000); }
    CHECK(cpu::memory_reserved() > before + 21000);
    cpu::empty_cache();
    CHECK(cpu::memory_reserved() < before + 1500);
    { const BufferPtr gone = cpu::allocate(20000); }
  }).join();
  CHECK(cpu::memory_reserved() == before);
}

#if defined(__linux__)
TEST_CASE("blocks that went back are the system's again") {
  if (!reuses) return;
  const auto resident = [] {
    int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages >> pages;
    return pages * 4096;
  };
  cpu::empty_cache();
  const int64_t before = resident();
  std::vector<BufferPtr> kept;  // between the others
  {
    std::vector<BufferPtr> once;
    for (int i = 0; i < 200; ++i) {
      once.push_back(cpu::allocate(size_t{100'000}));
      once.push_back(cpu::allocate(size_t{2} << 20));
      kept.push_back(cpu::allocate(size_t{33'000}));
      for (const BufferPtr& b : {once[once.size() - 1], once[once.size() - 2]})
        std::memset(b->bytes(), 1, b->size());
    }
  }
  CHECK(resident() - before > (400 << 20));
  cpu::empty_cache();
  // ThreadSanitizer keeps what it has noted of pages that are gone.
  CHECK(resident() - before < ((HALFTAPE_THREAD_SANITIZER ? 200 : 40) << 20));
}
#endif

TEST_CASE("live buffers and bytes are counted, and views do not count") {
  const int64_t buffers = Buffer::live_count(), bytes = Buffer::live_bytes();
  {
    const Array a({1000}, kFloat32, kCPU);
    const Array view = a.slice(0, 10, 20), same = a.reshape({10, 100});
    CHECK(Buffer::live_count() == buffers + 1);
    CHECK(Buffer::live_bytes() == bytes + static_cast<int64_t>(a.buffer()->size()));
    const Array copy = a.clone();
    CHECK(Buffer::live_count() == buffers + 2);
  }
  CHECK(Buffer::live_count() == buffers);
  CHECK(Buffer::live_bytes() == bytes);
}

TEST_CASE("an absurd size is an OutOfMemoryError that says how much was asked for and is live") {
  const Array a({1000}, kFloat32, kCPU);
  const int64_t buffers = Buffer::live_count();
  const std::string m =
      message<OutOfMemoryError>([] { Array({int64_t{1} << 50}, kFloat32, kCPU); });
  CHECK(m.find("out of memory: 4503599627370496 bytes asked for on cpu") == 0);
  CHECK(m.find(std::to_string(Buffer::live_bytes()) + " bytes live") != std::string::npos);
  CHECK(message<OutOfMemoryError>([] { cpu::allocate(~size_t{0}); }) != "");
  CHECK(message<OutOfMemoryError>([] { cpu::allocate(~size_t{0} / 2 + 1); }) != "");
  CHECK(Buffer::live_count() == buffers);
  CHECK_THROWS_AS(Array({int64_t{1} << 40, int64_t{1} << 40}, kFloat32, kCPU), Error);
  CHECK(full({3}, 1, kFloat32, kCPU).numel() == 3);  // life goes on
}

TEST_CASE("memory may be taken and given back in different threads") {
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&wrong, t] {
      std::vector<BufferPtr> held;
      for (int i = 0; i < 2000; ++i) {
        const size_t size = static_cast<size_t>(i * 37 % 5000);
        BufferPtr b = cpu::allocate(size);
        std::memset(b->bytes(), t, b->size());
        held.push_back(std::move(b));
        if (held.size() < 20) continue;
        const BufferPtr& old = held[static_cast<size_t>(i * 7 % 20)];
        const char* p = static_cast<const char*>(old->bytes());
        for (size_t j = 0; j < old->size(); j += 64) wrong += p[j] != t;
        if (i % 3 == 0) std::thread([gone = std::move(held)] {}).join();
        if (i % 3 == 0) held.clear();
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
}

TEST_CASE("the bytes of arrays are counted, small and large, and so is the most there were") {
  const int64_t before = cpu::memory_allocated();
  cpu::reset_peak_memory_stats();
  CHECK(cpu::max_memory_allocated() == before);
  {
    const Array small({10}, kFloat32, kCPU), large({1 << 20}, kFloat32, kCPU);
    const int64_t now = cpu::memory_allocated() - before;
    CHECK(now >= (4 << 20) + 40);
    CHECK(now < (4 << 20) + 1000);
    CHECK(cpu::max_memory_allocated() == before + now);
  }
  CHECK(cpu::memory_allocated() == before);
  CHECK(cpu::max_memory_allocated() > before + (4 << 20));
  cpu::reset_peak_memory_stats();
  CHECK(cpu::max_memory_allocated() == before);
}

TEST_CASE("blocks that another thread gives back, or keeps when it ends, are counted once") {
  const int64_t before = cpu::memory_allocated();
  std::vector<BufferPtr> blocks;
  std::thread([&] {
    for (int i = 0; i < 3000; ++i) blocks.push_back(cpu::allocate(64));
  }).join();
  const int64_t held = cpu::memory_allocated() - before;
  CHECK(held >= 3000 * 128);
  CHECK(held < 3000 * 256);
  std::thread([&] { blocks.clear(); }).join();
  CHECK(cpu::memory_allocated() == before);
  CHECK_THROWS_AS(cpu::allocate(size_t{1} << 60), OutOfMemoryError);
  CHECK(cpu::memory_allocated() == before);
}
