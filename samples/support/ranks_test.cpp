// One of two ranks, started by ranks_test.sh: what each sees of the other.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "ranks.h"

using namespace halftape;

namespace {

void expect(bool ok, const char* what) {
  if (ok) return;
  fmt::print(stderr, "rank {}: FAILED: {}\n", distributed::get_rank(), what);
  std::_Exit(1);
}

void sleep(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

}  // namespace

int main() {
  const sample::Ranks ranks(sample::Machine{.device = "cpu"});
  expect(ranks.size() == 2 && ranks.part_of(6) == 3, "two ranks take 3 of 6 each");
  expect(ranks.sum(static_cast<double>(ranks.rank() + 1)) == 3, "1 and 2 are 3");
  expect(ranks.mean(static_cast<double>(ranks.rank())) == 0.5, "the mean of 0 and 1");

  const RandomState start = get_random_state();
  const auto own = rand({1}, kFloat64).item<double>();
  set_random_state(start);
  ranks.draw_apart();
  const auto drawn = rand({1}, kFloat64).item<double>();
  expect((drawn == own) == ranks.first(), "rank 0 draws as it would alone, rank 1 does not");

  // A signal that comes while this rank waits for the other, which has none, must not part them.
  const sample::Interrupt ctrl_c;
  std::thread later;
  if (ranks.first()) {
    sleep(300);
  } else {
    later = std::thread([] { sleep(100), std::raise(SIGTERM); });
  }
  expect(!ranks.interrupted(), "nobody was interrupted when both were asked");
  if (later.joinable()) later.join();
  expect(ranks.interrupted(), "rank 1 is, when both are asked again");
  expect(sample::Interrupt::signal() == SIGTERM, "both end with the code of the signal");
  ranks.wait();
}
