// Ranks that watch each other, as processes, of which some are killed or stopped.
#include <doctest/doctest.h>

#include "halftape/core/machine/os.h"
#include "halftape/tests/support/clock.h"
#include "halftape/tests/support/temp_folder.h"

#if defined(__unix__) || defined(__APPLE__)
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include <chrono>
#include <memory>
#include <vector>

using halftape::testing::Clock, halftape::testing::pause, halftape::testing::since;
using halftape::testing::TempFolder;
using std::chrono::milliseconds;

namespace {

/// A child process that is one rank (watch_rank.cpp).
class RankProcess {
 public:
  RankProcess(const std::filesystem::path& folder, int rank, int size, int timeout, int period) {
    int in[2], out[2];
    REQUIRE((pipe(in) == 0 && pipe(out) == 0));
    // Other children must not hold these ends, or nobody's standard input would end.
    for (const int file : {in[0], in[1], out[0], out[1]}) fcntl(file, F_SETFD, FD_CLOEXEC);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    std::vector<std::string> words{HALFTAPE_WATCH_RANK,     folder.string(),
                                   std::to_string(rank),    std::to_string(size),
                                   std::to_string(timeout), std::to_string(period)};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const int failed =
        posix_spawn(&pid_, HALFTAPE_WATCH_RANK, &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]), close(out[1]);
    to_ = in[1], from_ = out[0];
    REQUIRE(failed == 0);
  }
  ~RankProcess() {
    send_signal(SIGKILL);
    close(to_), close(from_);
    waitpid(pid_, nullptr, 0);
  }
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  std::string pid() const { return std::to_string(pid_); }
  std::string name(int rank, int size) const {
    return "rank " + std::to_string(rank) + " of " + std::to_string(size) + " (host " +
           halftape::os::host_name() + ", pid " + pid() + ")";
  }
  void send_signal(int signal) { kill(pid_, signal); }
  void tell(const std::string& line) {
    const std::string text = line + "\n";
    REQUIRE(write(to_, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }
  /// Its next line; empty if it says nothing for that long, or has ended.
  std::string hear(int at_most = 5000) {
    const auto start = Clock::now();
    for (;;) {
      if (const size_t end = heard_.find('\n'); end != std::string::npos) {
        const std::string line = heard_.substr(0, end);
        heard_.erase(0, end + 1);
        return line;
      }
      pollfd one{from_, POLLIN, 0};
      const auto left = at_most - since(start).count();
      char bytes[512];
      if (left <= 0 || poll(&one, 1, static_cast<int>(left)) <= 0) return {};
      const ssize_t n = read(from_, bytes, sizeof(bytes));
      if (n <= 0) return {};
      heard_.append(bytes, static_cast<size_t>(n));
    }
  }

 private:
  pid_t pid_ = 0;
  int to_ = -1, from_ = -1;
  std::string heard_;
};

/// All ranks of a group, in processes, after they have met.
struct Processes {
  Processes(int size, int timeout = 60000, int period = 250) {
    for (int r = 0; r < size; ++r)
      ranks.push_back(std::make_unique<RankProcess>(folder / "store", r, size, timeout, period));
    for (auto& rank : ranks) REQUIRE(rank->hear(10000) == "met");
  }
  RankProcess& operator[](int r) { return *ranks[static_cast<size_t>(r)]; }
  std::string name(int r) { return (*this)[r].name(r, static_cast<int>(ranks.size())); }
  TempFolder folder;
  std::vector<std::unique_ptr<RankProcess>> ranks;
};

}  // namespace

TEST_CASE("a killed process is noticed by all within two seconds") {
  Processes group(4);
  group[2].tell("progress 1234 1 1 all_reduce 1234 (bucket 3)");
  pause(350);  // for it to tell
  const auto start = Clock::now();
  group[2].send_signal(SIGKILL);
  for (const int r : {0, 1, 3}) {
    CHECK(group[r].hear() ==
          "failed " + group.name(2) + " has died during all_reduce 1234 (bucket 3)");
    CHECK(since(start) < milliseconds(2000));
  }
  for (const int r : {0, 1, 3}) CHECK(group[r].hear(100).empty());  // only once
}

TEST_CASE("rank 0, too, is noticed when it is killed, or ends") {
  for (const bool killed : {true, false}) {
    Processes group(3);
    group[0].tell("progress 8 1 0 broadcast 8");
    pause(350);
    const auto start = Clock::now();
    if (killed)
      group[0].send_signal(SIGKILL);
    else
      group[0].tell("exit");
    for (const int r : {1, 2}) {
      CHECK(group[r].hear() == "failed " + group.name(0) + " has died after broadcast 8");
      CHECK(since(start) < milliseconds(2000));
    }
  }
}

TEST_CASE("a stopped process is noticed at the timeout, and learns of it when it goes on") {
  Processes group(3, 600, 50);
  group[1].tell("progress 3 1 1 all_reduce 3");
  pause(200);
  const auto start = Clock::now();
  group[1].send_signal(SIGSTOP);
  const std::string expected = "failed " + group.name(1) +
                               " has been silent for 0.6 s; its last known call was all_reduce 3";
  for (const int r : {0, 2}) {
    CHECK(group[r].hear() == expected);
    CHECK(since(start) > milliseconds(450));
    CHECK(since(start) < milliseconds(3000));
  }
  group[1].send_signal(SIGCONT);
  CHECK(group[1].hear() == expected);
}

TEST_CASE("a stopped rank 0 is noticed by the others, and accuses nobody when it goes on") {
  Processes group(3, 600, 50);
  group[0].send_signal(SIGSTOP);
  const std::string expected =
      "failed " + group.name(0) + " has been silent for 0.6 s; it has made no collective call";
  for (const int r : {1, 2}) CHECK(group[r].hear() == expected);
  group[2].send_signal(SIGKILL);  // ends because of it
  pause(100);
  group[0].send_signal(SIGCONT);
  CHECK(group[0].hear() == expected);
}

TEST_CASE("processes that are stopped for less than the timeout, or all at once, accuse nobody") {
  Processes group(3, 800, 50);
  const auto stop = [&group](const std::vector<int>& ranks, int time) {
    for (const int r : ranks) group[r].send_signal(SIGSTOP);
    pause(time);
    for (const int r : ranks) group[r].send_signal(SIGCONT);
  };
  stop({0}, 400);
  stop({2}, 400);
  stop({0, 1, 2}, 1000);
  for (const int r : {0, 1, 2}) CHECK(group[r].hear(200).empty());
  for (const int r : {0, 1, 2}) group[r].tell("leave 3000");
  for (const int r : {0, 1, 2}) CHECK(group[r].hear() == "left");
}

TEST_CASE("a process that is destroyed with a rank in a call does not hang") {
  Processes group(2, 60000, 50);
  group[1].send_signal(SIGSTOP);
  const auto start = Clock::now();
  group[0].tell("destroy");
  CHECK(group[0].hear() == "destroyed");
  CHECK(since(start) < milliseconds(1500));
  group[1].send_signal(SIGCONT);
  CHECK(group[1].hear() ==
        "failed " + group.name(0) + " has left without goodbye before its first collective call");
  group[1].tell("leave 10000");
  CHECK(group[1].hear() == "left");  // at once: there is nobody
}
#endif
