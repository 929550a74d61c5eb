// One rank of a group, which engine_test.cpp starts: engine_rank ENGINE RANK SIZE FOLDER MODE
// [PATTERN] It exits with 0 if all went as the mode wants it, and says on standard output what did
// not.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/core/dtype.h"
#include "halftape/distributed/engine/loader.h"
#include "halftape/distributed/process_group.h"
#include "halftape/tests/distributed/engine/folder_store.h"
#include "halftape/tests/support/sanitizers.h"

using namespace halftape;
using namespace halftape::distributed;
using std::chrono::duration;
using std::chrono::steady_clock;

namespace {

constexpr milliseconds kPatient(60000);
int failures = 0;

template <class... Parts>
void expect(bool held, const char* what, Parts... parts) {
  if (held || ++failures > 10) return;
  std::printf("failed: %s", what);
  (std::printf(" %g", static_cast<double>(parts)), ...);
  std::printf("\n");
}

/// The time that all processes of this machine share.
double now_ms() {
  return duration<double, std::milli>(std::chrono::system_clock::now().time_since_epoch()).count();
}
double seconds_since(steady_clock::time_point began) {
  return duration<double>(steady_clock::now() - began).count();
}

/// The text of the Error that f() throws.
std::string thrown_by(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

struct Group {
  int rank, size;
  std::unique_ptr<Engine> engine;
  uint64_t tag = 0;

  /// Exchanges size_of(from, to) bytes between all pairs, of which each pair and tag has its own.
  void exchange(const std::function<size_t(int from, int to)>& size_of,
                milliseconds timeout = kPatient) {
    ++tag;
    std::vector<std::vector<uint8_t>> out(static_cast<size_t>(size)), in(out);
    std::vector<Message> sends, receives;
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      std::vector<uint8_t>& to = out[static_cast<size_t>(peer)];
      std::vector<uint8_t>& from = in[static_cast<size_t>(peer)];
      to.resize(size_of(rank, peer));
      for (size_t i = 0; i < to.size(); ++i) to[i] = byte(rank, peer, i);
      from.resize(size_of(peer, rank));
      sends.push_back({peer, to.data(), to.size()});
      receives.push_back({peer, from.data(), from.size()});
    }
    engine->exchange(sends, receives, tag, timeout);
    for (int peer = 0; peer < size; ++peer) {
      const std::vector<uint8_t>& from = in[static_cast<size_t>(peer)];
      size_t wrong = 0;
      for (size_t i = 0; i < from.size(); ++i) wrong += from[i] != byte(peer, rank, i);
      expect(wrong == 0, "bytes of tag, peer, size:", tag, peer, from.size());
    }
  }
  uint8_t byte(int from, int to, size_t i) const {
    return static_cast<uint8_t>(static_cast<size_t>(from) * 31 + static_cast<size_t>(to) * 17 +
                                tag * 7 + i * 5 + (i >> 9));
  }
};

void exchange(Group& g) {
  for (const size_t size : {0, 1, 63, 64 * 1024 + 1, g.size > 4 ? 500'000 : 5'000'000})
    g.exchange([&](int, int) { return size; });
  // Some send what others do not answer.
  const size_t sizes[] = {0, 1, 100, 0, 70'001};
  for (int round = 0; round < 200; ++round)
    g.exchange([&](int from, int to) { return sizes[(from * 3 + to * 7 + round) % 5]; });
}

/// What is summed: whole numbers, of which every sum and product here is exact in every dtype.
template <class T>
T element(int rank, size_t i, ReduceOp op) {
  if (op == ReduceOp::Product) return static_cast<T>(i % 3 == 0 ? -1.0F : 1.0F + (rank == 1));
  return static_cast<T>(static_cast<float>(static_cast<int>(i % 25) - 11 + rank * 3));
}

template <class T>
void reduce_one(Group& g, Dtype dtype, ReduceOp op, size_t count) {
  std::vector<T> x(count);
  for (size_t i = 0; i < count; ++i) x[i] = element<T>(g.rank, i, op);
  expect(g.engine->all_reduce(x.data(), static_cast<int64_t>(count), dtype, op, ++g.tag, kPatient),
         "the engine refused dtype, op:", static_cast<int>(dtype), static_cast<int>(op));
  size_t wrong = 0;
  for (size_t i = 0; i < count; ++i) {
    double sum = static_cast<double>(element<T>(0, i, op));
    for (int r = 1; r < g.size; ++r) {
      const auto y = static_cast<double>(element<T>(r, i, op));
      sum = op == ReduceOp::Sum       ? sum + y
            : op == ReduceOp::Product ? sum * y
            : op == ReduceOp::Min     ? std::min(sum, y)
                                      : std::max(sum, y);
    }
    wrong += static_cast<double>(x[i]) != sum;
  }
  expect(wrong == 0, "of dtype, op, count are wrong:", static_cast<int>(dtype),
         static_cast<int>(op), count, wrong);
}

void reduce(Group& g) {
  for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max})
    for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{100'003}}) {
      reduce_one<float>(g, kFloat32, op, count);
      reduce_one<double>(g, kFloat64, op, count);
      reduce_one<int32_t>(g, kInt32, op, count);
      reduce_one<int64_t>(g, kInt64, op, count);
      reduce_one<Half>(g, kFloat16, op, count);
      reduce_one<BFloat16>(g, kBFloat16, op, count);
    }
  reduce_one<float>(g, kFloat32, ReduceOp::Sum, 3'000'000);  // several segments
  int8_t small = 1;
  expect(!g.engine->all_reduce(&small, 1, kInt8, ReduceOp::Sum, ++g.tag, kPatient), "int8");
  float mean = 1;
  expect(!g.engine->all_reduce(&mean, 1, kFloat32, ReduceOp::Avg, ++g.tag, kPatient), "avg");
  int32_t wraps = g.rank < 2 ? std::numeric_limits<int32_t>::max() : 0;
  expect(g.engine->all_reduce(&wraps, 1, kInt32, ReduceOp::Sum, ++g.tag, kPatient), "int32");
  expect(wraps == -2, "a sum of integers that wraps around:", wraps);
  for (const ReduceOp op : {ReduceOp::Min, ReduceOp::Max})
    for (int of = 0; of < g.size; ++of) {
      float x = g.rank == of ? std::numeric_limits<float>::quiet_NaN() : 1;
      g.engine->all_reduce(&x, 1, kFloat32, op, ++g.tag, kPatient);
      expect(x != x, "a NaN is lost in op, from rank:", static_cast<int>(op), of);
    }
}

/// All numbers of 16 bits, and partners for which Gloo's own sum drops results.
template <class T>
void all_numbers(Group& g, Dtype dtype) {
  const uint16_t partners[] = {0x0000, 0x0001, 0x3c00, 0x7600, 0x7788, 0x7bff, 0x7c00, 0x7e00,
                               0x8001, 0xbe00, 0xdc16, 0xf788, 0xfbff, 0xfc00, 0x5a5a, 0xa5a5};
  for (const uint16_t partner : partners) {
    std::vector<T> x(65536);
    size_t wrong = 0;
    for (uint32_t bits = 0; bits < 65536; ++bits)
      x[bits].bits = g.rank == 0 ? static_cast<uint16_t>(bits) : partner;
    expect(g.engine->all_reduce(x.data(), 65536, dtype, ReduceOp::Sum, ++g.tag, kPatient), "16");
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      const T sum(static_cast<float>(T::from_bits(static_cast<uint16_t>(bits))) +
                  static_cast<float>(T::from_bits(partner)));
      const auto got = static_cast<float>(x[bits]);
      wrong += x[bits].bits != sum.bits && !(got != got && !(sum == sum));
    }
    expect(wrong == 0, "sums of 16 bits are wrong, of dtype, partner:", wrong,
           static_cast<int>(dtype), partner);
  }
}

/// Calls g() after a while, and says when.
std::thread later(milliseconds after, const std::function<void()>& g) {
  return std::thread([=] {
    std::this_thread::sleep_for(after);
    std::printf("left %.3f\n", now_ms());
    std::fflush(stdout);
    g();
  });
}

/// The last rank goes while messages are under way: many, or a long one from rank 0 to it
/// ("midst"). Rank 0 then gives up itself, if it is told to ("abort").
void leave(Group& g, int signal, milliseconds timeout, const std::string& pattern) {
  const bool is_last = g.rank == g.size - 1, many = pattern != "midst" && pattern != "abort";
  std::vector<float> x(many ? 1'000'000 : 40'000'000);
  const Message m{is_last ? 0 : g.size - 1, x.data(), x.size() * sizeof(float)};
  g.exchange([](int, int) { return size_t{1}; });  // until all are here
  std::thread end;
  if (is_last) end = later(milliseconds(many ? 250 : 15), [=] { std::raise(signal); });
  if (pattern == "abort" && !is_last) end = later(milliseconds(300), [&] { g.engine->abort(); });
  const auto forever = [&] {
    for (;;)
      if (pattern == "reduce")
        g.engine->all_reduce(x.data(), 1'000'000, kFloat32, ReduceOp::Sum, ++g.tag, timeout);
      else if (many)
        g.exchange([&](int, int) { return size_t{pattern == "small" ? 1u : 3'000'000u}; }, timeout);
      else if (is_last)
        g.engine->exchange({}, {&m, 1}, ++g.tag, timeout);
      else
        g.engine->exchange({&m, 1}, {}, ++g.tag, timeout);
  };
  const std::string first = thrown_by(forever);
  std::printf("threw %.3f %s\n", now_ms(), first.c_str());
  const auto began = steady_clock::now();
  const std::string again = thrown_by(forever);
  expect(again == first, ("another error later: " + again).c_str());
  expect(seconds_since(began) < 1, "a later call took", seconds_since(began));
  if (end.joinable()) end.join();
}

/// Rank 0 gives up while it waits for what nobody sends. All others then fail, too.
void abort(Group& g, const std::string& pattern) {
  std::thread aborter;
  if (g.rank == 0) aborter = later(milliseconds(200), [&] { g.engine->abort(); });
  std::vector<uint8_t> bytes(10'000'000);
  const int peer = (g.rank + 1) % g.size;
  const Message m{peer, bytes.data(), bytes.size()};
  const std::string said = thrown_by([&] {
    if (pattern == "receive") g.engine->exchange({}, {&m, 1}, 1, kPatient);
    if (pattern == "send") g.engine->exchange({&m, 1}, {}, 1, kPatient);
    if (pattern == "reduce" && g.rank != g.size - 1)
      g.engine->all_reduce(bytes.data(), 2'500'000, kFloat32, ReduceOp::Sum, 1, kPatient);
    if (pattern == "reduce" && g.rank == g.size - 1) g.engine->exchange({}, {&m, 1}, 1, kPatient);
  });
  std::printf("threw %.3f %s\n", now_ms(), said.c_str());
  if (!aborter.joinable()) return;
  aborter.join();
  const std::string again = thrown_by([&] { g.exchange([](int, int) { return size_t{1}; }); });
  expect(again.find("aborted") != std::string::npos, "a call after abort()");
}

/// A group of one needs nobody.
void one(Group& g) {
  float x = 2.5F;
  expect(g.engine->all_reduce(&x, 1, kFloat32, ReduceOp::Sum, 1, kPatient) && x == 2.5F, "sum", x);
  g.engine->exchange({}, {}, 2, kPatient);
  const Message nobody{1, &x, sizeof x};
  expect(thrown_by([&] {
           g.engine->exchange({&nobody, 1}, {}, 3, kPatient);
         }) == "exchange: there is no peer 1 of rank 0 of 1",
         "a message to nobody");
  g.engine->exchange({}, {}, 4, kPatient);  // that was no end
  g.engine->abort();
  expect(thrown_by([&] { g.engine->exchange({}, {}, 5, kPatient); }) != "", "after abort()");
}

/// Ranks that disagree: an error after the timeout, not the end of the process.
void disagree(Group& g) {
  const std::string said = thrown_by([&] {
    g.exchange([&](int, int) { return static_cast<size_t>(100 + g.rank); }, milliseconds(400));
  });
  expect(
      said.find("another size") != std::string::npos || said.find("is lost") != std::string::npos,
      ("messages of different sizes: " + said).c_str());
}

/// Groups that begin and end one after the other at one place, where ranks come back before others
/// have left, under other numbers, after groups of their own and after a try that failed. A process
/// that was forked meanwhile has a group of its own, and ends.
void meet_again(const Group& g, const std::string& place) {
  for (int round = 0; round < 6; ++round) {
    const int rank = g.rank > 0 && round % 2 == 1 ? g.size - g.rank : g.rank;
    ProcessGroupOptions options{
        .timeout = milliseconds(20000), .init_method = place, .rank = rank, .world_size = g.size};
    if (round == 1 && rank == 0) {
      init_process_group({.rank = 0, .world_size = 1});
      destroy_process_group();
    }
    if (round == 3) {
      options.backend = rank == 1 ? "other" : "gloo";
      expect(!thrown_by([&] { init_process_group(options); }).empty(),
             "ranks that ask for different engines");
      options.backend = "gloo";
    }
    const bool is_default = round != 4;
    auto group = is_default ? init_process_group(options) : new_process_group(options);
    const Tensor x = full({1}, rank + 1, kFloat32);
    group->all_reduce(x);
    const auto sum = x.item<float>();
    expect(sum == static_cast<float>(g.size * (g.size + 1) / 2), "a sum in round", round, sum);
    if (round == 0 && !HALFTAPE_SANITIZED) {  // a sanitizer's own end waits for threads, too
      const pid_t child = fork();
      if (child == 0) {
        expect(!is_initialized(), "a default group of a forked process");
        expect(thrown_by([&] { group->barrier(); }).find("forked from a rank") != std::string::npos,
               "a call of a forked process");
        group.reset();
        init_process_group({.rank = 0, .world_size = 1});
        std::exit(get_world_size() == 1 && failures == 0 ? 0 : 1);
      }
      int status = 0;
      waitpid(child, &status, 0);
      expect(status == 0, "a group of a forked process");
    }
    if ((rank == 0) == (round % 2 == 0)) std::this_thread::sleep_for(milliseconds(100));
    if (is_default) {
      destroy_process_group();
      expect(thrown_by([&] { group->barrier(); }).find("has left the group") != std::string::npos,
             "a call after destroy_process_group()");
    }
  }
}

/// exit() says goodbye, whoever holds the group.
void end_held(const Group& g, const std::string& place) {
  const auto group = init_process_group(
      {.timeout = milliseconds(20000), .init_method = place, .rank = g.rank, .world_size = g.size});
  const Tensor x = full({1}, 1, kFloat32);
  group->all_reduce(x);
  if (g.rank == 0) std::exit(0);
  std::this_thread::sleep_for(milliseconds(500));
  const std::string said = thrown_by([&] { group->all_reduce(x); });
  expect(said.find("has left the group") != std::string::npos, said.c_str());
}

void bench(Group& g) {
  const auto report = [&](const char* what, size_t bytes, const std::function<void()>& f) {
    std::vector<double> times;
    const int rounds = bytes > 5'000'000 ? 7 : bytes > 100'000 ? 20 : 200;
    for (int round = 0; round <= rounds; ++round) {
      const auto began = steady_clock::now();
      f();
      if (round) times.push_back(seconds_since(began) * 1e6);
    }
    std::sort(times.begin(), times.end());
    if (g.rank == 0)
      std::printf("n=%d %-22s %9zu B  median %10.1f us  least %10.1f us\n", g.size, what, bytes,
                  times[times.size() / 2], times[0]);
  };
  for (const size_t bytes : {size_t{4}, size_t{40'000}, size_t{4'000'000}, size_t{40'000'000}}) {
    std::vector<uint8_t> x(bytes), y(bytes);
    const size_t part = bytes / static_cast<size_t>(g.size);
    std::vector<Message> sends, receives;
    for (int peer = 0; peer < g.size; ++peer) {
      if (peer == g.rank) continue;
      sends.push_back({peer, x.data() + part * static_cast<size_t>(peer), part});
      receives.push_back({peer, y.data() + part * static_cast<size_t>(peer), part});
    }
    report("exchange of 1/n each", bytes,
           [&] { g.engine->exchange(sends, receives, ++g.tag, kPatient); });
    report("two of them", bytes, [&] {
      g.engine->exchange(sends, receives, ++g.tag, kPatient);
      g.engine->exchange(sends, receives, ++g.tag, kPatient);
    });
    for (const Dtype dtype : {kFloat32, kFloat16, kBFloat16})
      report(("ring, " + std::string(name(dtype))).c_str(), bytes, [&] {
        g.engine->all_reduce(x.data(), static_cast<int64_t>(bytes / (dtype == kFloat32 ? 4 : 2)),
                             dtype, ReduceOp::Sum, ++g.tag, kPatient);
      });
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 6) return 2;
  const std::string mode = arguments[5], pattern = count > 6 ? arguments[6] : "";
  Group g{std::stoi(arguments[2]), std::stoi(arguments[3]), nullptr};
  testing::FolderStore store(arguments[4]);
  try {
    if (mode == "again") {
      meet_again(g, pattern.empty() ? "file://" + std::string(arguments[4]) + "/met" : pattern);
      return failures ? 1 : 0;
    }
    if (mode == "held") {
      end_held(g, "file://" + std::string(arguments[4]) + "/met");
      return failures ? 1 : 0;
    }
    const auto began = steady_clock::now();
    g.engine = open_engine(
        arguments[1], {g.rank, g.size, &store, mode == "alone" ? milliseconds(700) : kPatient, ""});
    if (mode == "bench" && g.rank == 0)
      std::printf("met after %.1f ms\n", seconds_since(began) * 1e3);
    expect(store.timeout() == milliseconds(12345), "the store's timeout was changed");
    if (mode == "exchange") exchange(g);
    if (mode == "reduce") reduce(g);
    if (mode == "numbers") all_numbers<Half>(g, kFloat16), all_numbers<BFloat16>(g, kBFloat16);
    if (mode == "kill") leave(g, SIGKILL, kPatient, pattern);
    if (mode == "stop")
      leave(g, SIGSTOP, pattern == "abort" ? kPatient : milliseconds(2000), pattern);
    if (mode == "abort") abort(g, pattern);
    if (mode == "one") one(g);
    if (mode == "disagree") disagree(g);
    if (mode == "bench") bench(g);
    const auto ends = steady_clock::now();
    g.engine.reset();
    expect(seconds_since(ends) < 1, "the end of the engine took", seconds_since(ends));
  } catch (const std::exception& e) {
    std::printf("threw %.3f %s\n", now_ms(), e.what());
    return 3;
  }
  // The leak checker trips over threads that have ended just now.
  std::this_thread::sleep_for(milliseconds(20));
  return failures ? 1 : 0;
}
