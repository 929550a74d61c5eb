// What a thread keeps lives until the thread ends, and is destroyed whole.
#include <doctest/doctest.h>

#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

#include "halftape/core/machine/per_thread.h"

using namespace halftape;

namespace {

std::atomic<int> alive{0}, sound{0};

struct Kept {
  std::vector<int> values = std::vector<int>(500);
  Kept() {
    std::iota(values.begin(), values.end(), 1);
    ++alive;
  }
  ~Kept() {
    --alive;
    sound +=
        values.size() == 500 && std::accumulate(values.begin(), values.end(), 0) == 500 * 501 / 2;
  }
};
struct AnotherKept : Kept {};

using Count = Counter<struct OfThisTest>;

}  // namespace

TEST_CASE("what a thread keeps is destroyed with the thread, and is whole until then") {
  const int before = sound;
  for (int i = 0; i < 20; ++i)
    std::thread([] {
      Kept* const kept = per_thread<Kept>();
      REQUIRE(kept);
      CHECK(kept == per_thread<Kept>());
      CHECK(kept != per_thread<AnotherKept>());
    }).join();
  CHECK(alive == 0);
  CHECK(sound == before + 40);
}

TEST_CASE("the counts of threads that have ended are kept") {
  const int64_t before = Count::total();
  for (int i = 0; i < 10; ++i) std::thread([] { Count::add(3); }).join();
  CHECK(Count::total() == before + 30);
}
