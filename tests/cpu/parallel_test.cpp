// The pool: every task runs once, nested loops, exceptions, and many callers at a time.
#include <doctest/doctest.h>

#if defined(__unix__) || defined(__APPLE__)
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#define HALFTAPE_CAN_FORK 1
#else
#define HALFTAPE_CAN_FORK 0
#endif

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "halftape/core/contract/backend.h"
#include "halftape/core/formula/reduce.h"
#include "halftape/core/machine/os.h"
#include "halftape/cpu/runtime/parallel.h"
#include "halftape/halftape.h"
#include "halftape/tests/support/sanitizers.h"
#include "halftape/tests/support/warnings.h"

using namespace halftape;
using cpu::parallel_for;
using cpu::parallel_ranges;

namespace {

/// Puts the number of threads back.
struct Threads {
  int before = get_num_threads();
  explicit Threads(int n) { set_num_threads(n); }
  ~Threads() { set_num_threads(before); }
};

bool each_once(int64_t count) {
  std::vector<std::atomic<int>> runs(static_cast<size_t>(count));
  parallel_for(count, [&](int64_t i) { ++runs[static_cast<size_t>(i)]; });
  for (const auto& n : runs)
    if (n != 1) return false;
  return true;
}

/// Where it is told to: goes on while the program ends, when all that was made later is gone, the
/// pool among it.
struct LateUser {
  void (*ends)() = nullptr;
  ~LateUser() {
    if (ends) ends();
  }
} late_user;  // NOLINT: that its destructor computes is the test

}  // namespace

TEST_CASE("threads by default") {
  const char* const wanted = std::getenv("WANTED_THREADS");  // tests/CMakeLists.txt
  if (!wanted) return;
  const bool all = std::string(wanted) == "processors";
  CHECK(get_num_threads() == (all ? os::processors() : std::atoi(wanted)));
}

TEST_CASE("every task runs exactly once, for any number of tasks and threads") {
  for (const int threads : {1, 2, 3, 4, 8, 16, 2}) {
    const Threads use(threads);
    CHECK(get_num_threads() == threads);
    for (const int64_t count : {0, 1, 2, 3, 7, 8, 9, 1000}) {
      CAPTURE(threads);
      CAPTURE(count);
      CHECK(each_once(count));
    }
  }
}

TEST_CASE("ranges cover everything without overlap") {
  const Threads use(4);
  for (const int64_t total : {0, 1, 7, 99, 100, 101, 1000}) {
    std::vector<std::atomic<int>> runs(static_cast<size_t>(total));
    std::atomic<int64_t> longest{0};
    parallel_ranges(total, 100, [&](int64_t begin, int64_t end) {
      if (end - begin > longest) longest = end - begin;
      for (int64_t i = begin; i < end; ++i) ++runs[static_cast<size_t>(i)];
    });
    for (const auto& n : runs) CHECK(n == 1);
    CHECK(longest <= 100);
  }
}

TEST_CASE("tasks run on other threads too, and never on more than were asked for") {
  const Threads use(3);
  std::mutex mutex;
  std::set<std::thread::id> seen;
  std::atomic<int> inside{0}, most{0};
  parallel_for(60, [&](int64_t) {
    const int now = ++inside;
    for (int m = most; now > m && !most.compare_exchange_weak(m, now);) {
    }
    {
      const std::lock_guard lock(mutex);
      seen.insert(std::this_thread::get_id());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    --inside;
  });
  CHECK(seen.size() > 1);
  CHECK(seen.size() <= 3);
  CHECK(most <= 3);
  seen.clear();
  set_num_threads(1);
  parallel_for(60, [&](int64_t) { seen.insert(std::this_thread::get_id()); });
  CHECK(seen == std::set{std::this_thread::get_id()});
}

TEST_CASE("fewer than one thread is refused with the number, and changes nothing") {
  const Threads use(3);
  for (const int n : {0, -1, -1000}) {
    try {
      set_num_threads(n);
      FAIL_CHECK("no error");
    } catch (const Error& e) {
      CHECK(std::string(e.what()) ==
            "set_num_threads: " + std::to_string(n) + " threads; at least 1 is needed");
    }
    CHECK(get_num_threads() == 3);
  }
}

TEST_CASE("a loop inside a task runs on the task's own thread") {
  const Threads use(4);
  std::atomic<int64_t> sum{0}, strangers{0};
  parallel_for(20, [&](int64_t i) {
    const auto self = std::this_thread::get_id();
    parallel_for(30, [&](int64_t j) {
      sum += i * 30 + j;
      strangers += std::this_thread::get_id() != self;
      parallel_for(2, [&](int64_t) { strangers += std::this_thread::get_id() != self; });
    });
  });
  CHECK(sum == 600 * 599 / 2);
  CHECK(strangers == 0);
  CHECK(each_once(1000));  // and afterwards loops are parallel again, and whole
}

TEST_CASE("an exception of a task reaches the caller, and the pool stays usable") {
  for (const int threads : {1, 2, 4}) {
    const Threads use(threads);
    for (const int64_t count : {1, 2, 100}) {
      for (const int64_t bad : {int64_t{0}, count / 2, count - 1}) {
        std::atomic<int64_t> running{0};
        CHECK_THROWS_WITH_AS(parallel_for(count,
                                          [&](int64_t i) {
                                            ++running;
                                            std::this_thread::yield();
                                            --running;
                                            if (i == bad) throw std::out_of_range("task");
                                          }),
                             "task", std::out_of_range);
        CHECK(running == 0);  // nobody is still at work on what the caller may now destroy
        CHECK(each_once(100));
      }
    }
    CHECK_THROWS_AS(parallel_for(10, [](int64_t) { throw Error("every one"); }), Error);
    CHECK_THROWS_AS(parallel_for(4,
                                 [](int64_t) {
                                   parallel_for(4, [](int64_t j) {
                                     if (j == 3) throw Error("nested");
                                   });
                                 }),
                    Error);
    CHECK(each_once(100));
  }
}

TEST_CASE("many threads may call at the same time, and change the number of threads meanwhile") {
  const Threads use(4);
  const Array x({70001}, kFloat32, kCPU);
  cpu_backend().random(x, Distribution::Normal, 0, 1, {.seed = 1, .offset = 0});
  auto sum = [&] {
    const Array y({}, kFloat32, kCPU);
    cpu_backend().reduce(ReduceOps::index<formula::Sum>(), y, x, {0});
    return read_double(y);
  };
  const double expected = sum();
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < 8; ++t)
    callers.emplace_back([&, t] {
      for (int round = 0; round < 60; ++round) {
        if (t == 0) set_num_threads(1 + round % 5);
        const Array y = x.clone();
        cpu_backend().fill(y, t);
        wrong += read_double(y.slice(0, 70000, 70001)) != t;
        wrong += sum() != expected;
        try {
          parallel_for(8, [&](int64_t i) {
            if (i == t) throw Error("expected");
          });
          ++wrong;
        } catch (const Error&) {
        }
      }
    });
  for (std::thread& c : callers) c.join();
  CHECK(wrong == 0);
}

#if HALFTAPE_CAN_FORK
TEST_CASE("a forked child, which has none of the pool's threads, computes and exits") {
  const Threads use(4);
  CHECK(each_once(100));  // the pool has threads now
  std::fflush(nullptr);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(10);  // rather than wait forever for a thread that is not there
#if HALFTAPE_THREAD_SANITIZER
    set_num_threads(1);  // it refuses new threads in the child of a process that has some
#endif
    const bool right = each_once(100);
#if HALFTAPE_ADDRESS_SANITIZER
    _exit(right ? 0 : 1);  // at exit() it would count what belongs to threads that are not here
#endif
    std::exit(right ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

#if !HALFTAPE_THREAD_SANITIZER
TEST_CASE("a static object's destructor computes on the pool, which was made after it") {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(10);
    set_num_threads(2);
    if (!each_once(100)) _exit(3);  // starts threads
    late_user.ends = [] {
      set_num_threads(2);
      std::_Exit(each_once(100) ? 0 : 1);
    };
    std::exit(2);  // unless the destructor says something else
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE(
    "threads that still compute while the program ends do no harm, on the pool or beside it") {
  for (int round = 0; round < 8; ++round) {
    std::fflush(nullptr);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      alarm(10);
      set_num_threads(2);
      static std::atomic<int> rounds{0}, wrong{0};
      for (int t = 0; t < 3; ++t)
        std::thread([] {
          for (const Tensor x = ones({100'000}, TensorOptions().device(kCPU));;)
            wrong += (x + x).sum().item<double>() != 200'000, wrong += !each_once(100), ++rounds;
        }).detach();
      while (rounds < 10) std::this_thread::yield();
      // Runs last of all, and lets the threads go on for a while in what is left of the program.
      late_user.ends = [] {
        for (const int before = rounds; rounds < before + 20;) std::this_thread::yield();
        std::_Exit(wrong == 0 ? 0 : 1);
      };
      std::exit(2);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
}
#endif

#if defined(__linux__) && !HALFTAPE_THREAD_SANITIZER
TEST_CASE("65,536 elements are the calling thread's alone, and more are not") {
  const auto threads_after = [](int64_t rows, const auto& f) {
    const pid_t child = fork();  // it starts without a pool
    REQUIRE(child >= 0);
    if (child == 0) {
      alarm(20);
      set_num_threads(2);
      {
        const Tensor x = ones({rows, 256}, TensorOptions().device(kCPU)).set_requires_grad(true);
        f(x);
      }
      const std::filesystem::directory_iterator tasks("/proc/self/task");
      _exit(static_cast<int>(std::distance(begin(tasks), end(tasks))));
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    return WEXITSTATUS(status);
  };
  const auto both = [&](const std::string& name, const auto& f) {
    CAPTURE(name);
    CHECK(threads_after(256, f) == 1);
    CHECK(threads_after(512, f) == 2);
  };
  both("a map and its backward", [](const Tensor& x) { gelu(x + x).backward(x.detach()); });
  both("rows", [](const Tensor& x) { softmax(x, 1).backward(x.detach()); });
  both("a sum of columns", [](const Tensor& x) { const Tensor y = x.detach().sum({0}); });
  both("a sum of rows", [](const Tensor& x) { const Tensor y = x.detach().sum({1}); });
  both("a transposed copy", [](const Tensor& x) { const Tensor y = x.detach().t().contiguous(); });
  both("a step", [](const Tensor& x) {
    x.mutable_grad() = x.detach();
    optim::Adam(std::vector<Tensor>{x}, optim::AdamOptions(0.1)).step();
  });
}

#if !HALFTAPE_ADDRESS_SANITIZER
TEST_CASE("threads that the system refuses are done without, with one warning") {
  const pid_t child = fork();  // it starts without a pool
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(20);
    int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    // Room for a few threads' stacks, of 8 MiB each.
    const rlim_t room = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE)) + (24 << 20);
    const rlimit limit{room, room};
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(9);
    testing::Warnings warnings;
    set_num_threads(64);
    bool right = true;
    for (int i = 0; i < 3; ++i) right = right && each_once(1000);
    const bool said = warnings.seen.size() == 1 &&
                      warnings.seen[0].find("of 63 threads beside the caller") != std::string::npos;
    _exit(right && said ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
#endif
#endif
#endif
