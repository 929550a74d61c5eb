// The gloo engine, by groups of processes (engine_rank.cpp) of which some die, hang or give up; and
// how an engine is found.
#if defined(__unix__) || defined(__APPLE__)
#include "halftape/distributed/engine/engine.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "halftape/core/check.h"
#include "halftape/core/machine/sockets.h"
#include "halftape/distributed/engine/loader.h"
#include "halftape/halftape.h"
#include "halftape/tests/distributed/engine/folder_store.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/temp_folder.h"

extern char** environ;

namespace halftape::testing {
namespace {

using namespace halftape::distributed;

/// What a rank did.
struct Ended {
  int status = -1;  // of waitpid(); -1 if it had to be ended
  std::string said;
  double left = 0, threw = 0;  // in milliseconds, of one clock
  std::string error;

  bool well() const { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }
};

pid_t start(const std::vector<std::string>& words, const std::string& output) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, output.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  // Whoever started the tests may ignore the signal of a broken pipe, which ends a program.
  posix_spawnattr_t attributes;
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t process = -1;
  const int failed =
      posix_spawn(&process, arguments[0], &files, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  REQUIRE_MESSAGE(failed == 0, "cannot start ", words[0]);
  return process;
}

Ended read(int status, const std::string& said) {
  Ended ended;
  ended.status = status;
  ended.said = said;
  std::istringstream lines(said);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string what;
    words >> what;
    if (what == "left") words >> ended.left;
    if (what == "threw") {
      words >> ended.threw;
      std::getline(words >> std::ws, ended.error);
    }
  }
  return ended;
}

/// Runs a group of `size` ranks, of which only the first `present` come. What still runs 5 seconds
/// after another's end is ended, and so is the one that stops itself when all others are through.
std::vector<Ended> run(int size, const std::string& mode, const std::string& pattern = "",
                       int present = 0) {
  const TempFolder folder;
  std::vector<pid_t> processes;
  const auto output = [&](size_t rank) {
    return (folder / ("output" + std::to_string(rank))).string();
  };
  const size_t ranks = static_cast<size_t>(present ? present : size);
  for (size_t rank = 0; rank < ranks; ++rank)
    processes.push_back(start({HALFTAPE_ENGINE_RANK, "gloo", std::to_string(rank),
                               std::to_string(size), folder.path().string(), mode, pattern},
                              output(rank)));
  std::vector<int> statuses(ranks, -1);
  auto last = std::chrono::steady_clock::now();
  const auto began = last;
  for (size_t running = ranks; running > (mode == "stop" ? 1 : 0);) {
    for (size_t rank = 0; rank < ranks; ++rank)
      if (statuses[rank] == -1 && waitpid(processes[rank], &statuses[rank], WNOHANG) > 0)
        --running, last = std::chrono::steady_clock::now();
    const auto now = std::chrono::steady_clock::now();
    const bool too_late = running < ranks && now - last > std::chrono::seconds(5);
    if (too_late || now - began > std::chrono::seconds(60)) break;
    std::this_thread::sleep_for(milliseconds(2));
  }
  std::vector<Ended> all;
  for (size_t rank = 0; rank < ranks; ++rank) {
    if (statuses[rank] == -1) {
      int ignored;
      kill(processes[rank], SIGKILL);
      waitpid(processes[rank], &ignored, 0);
    }
    all.push_back(read(statuses[rank], read_bytes(output(rank))));
  }
  return all;
}

void check_well(const std::vector<Ended>& ranks) {
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    CHECK_MESSAGE(ranks[rank].well(), "rank ", rank, " of ", ranks.size(), ", status ",
                  ranks[rank].status, ": ", ranks[rank].said);
}

bool is_built() {
#ifdef HALFTAPE_HAVE_GLOO
  return true;
#else
  MESSAGE("the gloo engine is not built (Debian: libgloo-dev): its tests are left out");
  return false;
#endif
}

std::string error_of(const std::string& engine) {
  try {
    open_engine(engine, {0, 1, nullptr, milliseconds(1000), ""});
  } catch (const Error& e) {
    return e.what_without_backtrace();
  }
  return "";
}

/// An environment variable that is set for a while.
struct Variable {
  Variable(const char* variable, const std::string& value) : name(variable) {
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { unsetenv(name); }
  const char* name;
};

TEST_CASE("gloo exchanges messages between all pairs") {
  if (!is_built()) return;
  for (const int size : {2, 3, 4, 8}) check_well(run(size, "exchange"));
}

TEST_CASE("ranks meet again where they have met, whoever comes back first") {
  if (!is_built()) return;
  check_well(run(3, "again"));
  // The port is free again once this server has gone.
  const uint16_t port = TcpStore("127.0.0.1", {.port = 0, .is_server = true}).port();
  check_well(run(3, "again", "tcp://127.0.0.1:" + std::to_string(port)));
}

TEST_CASE("a rank that ends by exit() has left the group, though it holds it") {
  if (!is_built()) return;
  check_well(run(3, "held"));
}

TEST_CASE("gloo's group of one needs nobody") {
  if (!is_built()) return;
  check_well(run(1, "one"));
}

TEST_CASE("gloo's ring reduces every dtype, with Halftape's arithmetic") {
  if (!is_built()) return;
  for (const int size : {2, 3, 4}) check_well(run(size, "reduce"));
}

TEST_CASE("gloo's ring adds all numbers of 16 bits as a plain loop does") {
  if (!is_built()) return;
  check_well(run(2, "numbers"));
}

TEST_CASE("a rank that is killed is an error in all others") {
  if (!is_built()) return;
  for (const char* pattern : {"exchange", "small", "reduce", "midst"})
    for (const int size : {2, 4}) {
      if (std::string(pattern) == "midst" && size > 2) continue;
      const std::vector<Ended> ranks = run(size, "kill", pattern);
      const Ended& victim = ranks.back();
      CHECK(WIFSIGNALED(victim.status));
      for (size_t rank = 0; rank + 1 < ranks.size(); ++rank) {
        CHECK_MESSAGE(ranks[rank].well(), pattern, ", rank ", rank, ", status ", ranks[rank].status,
                      ": ", ranks[rank].said);
        CHECK(ranks[rank].threw - victim.left < 1500);
        CHECK_MESSAGE(ranks[rank].error.starts_with("gloo, rank " + std::to_string(rank) + " of "),
                      ranks[rank].error);
      }
    }
}

TEST_CASE("a rank that hangs is an error in all others after the timeout") {
  if (!is_built()) return;
  for (const char* pattern : {"exchange", "reduce"}) {
    const std::vector<Ended> ranks = run(3, "stop", pattern);
    const Ended& victim = ranks.back();
    CHECK(victim.status == -1);
    for (size_t rank = 0; rank + 1 < ranks.size(); ++rank) {
      CHECK_MESSAGE(ranks[rank].well(), pattern, ", rank ", rank, ", status ", ranks[rank].status,
                    ": ", ranks[rank].said);
      CHECK(ranks[rank].threw - victim.left > 1500);
      CHECK(ranks[rank].threw - victim.left < 3000);
    }
  }
}

TEST_CASE("abort() of one rank ends the calls of all") {
  if (!is_built()) return;
  for (const char* pattern : {"receive", "send", "reduce"}) {
    const std::vector<Ended> ranks = run(3, "abort", pattern);
    check_well(ranks);
    CHECK(ranks[0].error == "gloo, rank 0 of 3: the group was aborted");
    for (const Ended& rank : ranks) {
      CHECK_MESSAGE(rank.error != "", pattern);
      CHECK_MESSAGE(rank.threw - ranks[0].left < 1000, pattern);
    }
  }
}

TEST_CASE("abort() ends the call in the midst of a message, too") {
  if (!is_built()) return;
  const Ended giver = run(2, "stop", "abort").front();
  CHECK_MESSAGE(giver.well(), giver.said);
  CHECK(giver.error == "gloo, rank 0 of 2: the group was aborted");
  CHECK(giver.threw - giver.left < 1000);
}

TEST_CASE("messages of sizes on which two ranks disagree do not meet") {
  if (!is_built()) return;
  check_well(run(2, "disagree"));
}

TEST_CASE("a rank that never comes is an error after the timeout") {
  if (!is_built()) return;
  const auto began = std::chrono::steady_clock::now();
  const std::vector<Ended> ranks = run(2, "alone", "", 1);
  CHECK(std::chrono::steady_clock::now() - began < milliseconds(2000));
  CHECK_MESSAGE(ranks[0].error.starts_with("the gloo engine did not start: nobody set "),
                ranks[0].said);
}

TEST_CASE("an engine that is not there, or does not start, is an error with the reason") {
  CHECK(error_of("none") ==
        "the none engine is not installed: libhalftape_none.so lies neither beside the program nor "
        "in a folder of its run path; if it lies elsewhere, HALFTAPE_NONE_LIBRARY names it");
  const Variable old("HALFTAPE_OLD_LIBRARY", HALFTAPE_PLANTED_ENGINES);
  CHECK(error_of("old") == HALFTAPE_PLANTED_ENGINES " belongs to another version of halftape");
  const Variable sad("HALFTAPE_SAD_LIBRARY", HALFTAPE_PLANTED_ENGINES);
  CHECK(error_of("sad") == "the sad engine did not start: it rains");
  const Variable gloo("HALFTAPE_GLOO_LIBRARY", "/none/of/these.so");
  CHECK(error_of("gloo") ==
        "HALFTAPE_GLOO_LIBRARY: there is no file /none/of/these.so; install libhalftape-gloo, or "
        "build halftape where libgloo-dev is installed");
}

TEST_CASE("a name of an engine leads to no other file") {
  const std::string rule =
      " is no name of an engine: those are small letters and digits, such as \"gloo\"";
  for (const std::string& bad : {std::string(), std::string("../x"), std::string("Gloo"),
                                 std::string("a/b"), std::string("a b"), std::string("gl.oo"),
                                 std::string("{}"), std::string("a:"), std::string(33, 'a')})
    CHECK(error_of(bad) == "\"" + bad + "\"" + rule);
}

TEST_CASE("gloo says why a group cannot be") {
  if (!is_built()) return;
  FolderStore store(TempFolder().path());
  const auto refused = [](const EngineSetup& setup) {
    return message([&] { open_engine("gloo", setup); });
  };
  const std::string start = "the gloo engine did not start: ";
  const std::string counted = ": ranks are counted from 0";
  CHECK(refused({2, 2, &store, milliseconds(1000), ""}) == start + "rank 2 of 2" + counted);
  CHECK(refused({-1, 2, &store, milliseconds(1000), ""}) == start + "rank -1 of 2" + counted);
  CHECK(refused({0, 0, &store, milliseconds(1000), ""}) == start + "rank 0 of 0" + counted);
  CHECK(refused({0, 2, nullptr, milliseconds(1000), ""}) == start + "there is no store to meet in");
  CHECK(refused({0, 2, &store, milliseconds(1000), "192.0.2.1"}) ==
        start + "\"192.0.2.1\" is no address of this machine");
}

TEST_CASE("two ranks meet by a port or a folder, and all_reduce by gloo") {
  if (!is_built()) return;
  for (const bool by_port : {true, false}) {
    const TempFolder folder;
    const uint16_t port = os::listen_at(0).port();  // free, as it is closed at once
    const std::string place = by_port ? "tcp://[127.0.0.1]:" + std::to_string(port)
                                      : "file://" + (folder / "store").string();
    const auto on_both = [&](const std::function<void(ProcessGroupOptions)>& f) {
      std::vector<std::thread> threads;
      for (const int rank : {0, 1})
        threads.emplace_back([&, rank] {
          ProcessGroupOptions options{.backend = "gloo", .timeout = milliseconds(20000)};
          options.init_method = place, options.rank = rank, options.world_size = 2;
          if (!by_port) options.host = "127.0.0.1";
          f(options);
        });
      for (std::thread& thread : threads) thread.join();
    };
    on_both([](const ProcessGroupOptions& options) {
      const auto group = new_process_group(options);
      CHECK(group->backend() == "gloo");
      CHECK(group->rank() == options.rank);
      CHECK(group->size() == 2);
      CHECK_FALSE(group->queues());
      const Tensor x = full({3}, group->rank() + 1.);
      group->all_reduce(x);
      CHECK(x.equal(full({3}, 3.)));
      group->store()->set("of " + std::to_string(options.rank), "1");
      CHECK(group->store()->get("of " + std::to_string(1 - options.rank)) == "1");
    });
    if (by_port) continue;
    std::filesystem::remove_all(folder / "store");
    // Who hears first that the other one has given up says that instead.
    std::string texts[2];
    on_both([&](ProcessGroupOptions options) {
      if (options.rank == 1) options.backend = "nccl";
      texts[options.rank] = message([&] { new_process_group(options); });
    });
    CHECK_MESSAGE(
        has(texts[0] + texts[1], "rank 0 asks for the backend \"gloo\", rank 1 for \"nccl\""),
        texts[0], "; ", texts[1]);
    for (const std::string& text : texts) CHECK(text.starts_with("init_process_group: rank "));
  }
}

/// Numbers of this rank whose sums differ in their last bits where the order does.
Tensor uneven(int rank, int64_t n, Dtype dtype) {
  return ((arange(n).to(kFloat64) * 0.37 + rank * 1.3).sin() * (1. + rank * 997)).to(dtype);
}

TEST_CASE("an average by gloo's ring is its sum, divided; in 16 bits that is the tree's") {
  if (!is_built()) return;
  const TempFolder folder;
  const int size = 3;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      const auto group = new_process_group({.backend = "gloo",
                                            .timeout = milliseconds(20000),
                                            .summation = Summation::Engine,
                                            .init_method = "file://" + (folder / "store").string(),
                                            .rank = rank,
                                            .world_size = size,
                                            .host = "127.0.0.1"});
      for (const Dtype dtype : {kFloat32, kFloat64})
        for (const int64_t n : {1000, 100003}) {
          const Tensor sum = uneven(rank, n, dtype), mean = uneven(rank, n, dtype);
          group->all_reduce(sum);
          group->all_reduce(mean, ReduceOp::Avg);
          CHECK(mean.equal(sum / size));
          const Tensor tree = (uneven(0, n, dtype) + uneven(1, n, dtype)) + uneven(2, n, dtype);
          CHECK_FALSE(mean.equal(tree / size));
        }
      const Tensor half = full({5000}, 32768, kFloat16);  // the sum is beyond the largest one
      group->all_reduce(half, ReduceOp::Avg);
      CHECK(half.equal(full({5000}, 32768, kFloat16)));
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_CASE("reductions have names") {
  const std::pair<ReduceOp, std::string> names[] = {
      {ReduceOp::Sum, "sum"}, {ReduceOp::Avg, "avg"}, {ReduceOp::Product, "product"},
      {ReduceOp::Min, "min"}, {ReduceOp::Max, "max"}, {static_cast<ReduceOp>(9), "?"}};
  for (const auto& [op, name] : names) CHECK(to_string(op) == name);
}

}  // namespace
}  // namespace halftape::testing
#endif
