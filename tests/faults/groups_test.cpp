// Threads that do not start while processes meet: the group is made, or the error says why not, and
// nothing is left behind that the next one would stumble over.
#if defined(HALFTAPE_HAVE_GLOO)
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <halftape/distributed/distributed.h>
#include <halftape/halftape.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <future>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "halftape/distributed/store/tcp_store.h"
#include "halftape/tests/faults/system_calls.h"

using namespace halftape;
using namespace halftape::distributed;
using namespace halftape::testing;

namespace {

constexpr milliseconds kShort(6000);  // of a group that perhaps never meets

/// What a rank says after a right sum; anything else is the text of an Error, or of another
/// exception behind "foreign".
constexpr std::string_view kRight = "right";

template <class F>
std::string said_by(const F& f) {
  try {
    f();
    return std::string(kRight);
  } catch (const Error& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("foreign: ") + error.what();
  }
}

/// Makes a group, sums, and leaves. Rank 0's is the default group.
void sum_once(int rank, const std::shared_ptr<Store>& store, milliseconds timeout) {
  ProcessGroupOptions options;
  options.backend = "gloo";
  options.timeout = timeout;
  options.rank = rank;
  options.world_size = 2;
  options.store = store;
  options.host = "127.0.0.1";
  const auto group = rank == 0 ? init_process_group(options) : new_process_group(options);
  struct Leaving {
    int rank;
    ~Leaving() {
      if (rank == 0) destroy_process_group();
    }
  } const leaving{rank};
  const Tensor x = full({3}, rank + 1., kFloat32);
  group->all_reduce(x);
  if (x.to_vector() != std::vector<double>{3, 3, 3}) throw std::logic_error("a wrong sum");
}

/// Two ranks, which are threads of this process. Threads are refused as `nth` and `persists` say;
/// 0: none. Returns what the ranks said.
std::vector<std::string> meet(int64_t nth, bool persists, milliseconds timeout, bool& refused) {
  const auto store_at = [&](uint16_t port, bool is_server) {
    return std::make_shared<TcpStore>("127.0.0.1", TcpStoreOptions{port, is_server, timeout});
  };
  std::promise<uint16_t> port;
  std::vector<std::string> said(2);
  std::thread other([&, to = port.get_future()]() mutable {  // before any is refused
    said[1] = said_by([&] {
      const uint16_t at = to.get();
      if (at == 0) throw Error("there is no store");
      sum_once(1, store_at(at, false), timeout);
    });
  });
  const RefusedThreads refusing(nth, persists);
  std::shared_ptr<TcpStore> store;  // until both are through
  said[0] = said_by([&] {
    store = store_at(0, true);
    port.set_value(store->port());
    sum_once(0, store, timeout);
  });
  if (!store) port.set_value(0);
  other.join();
  refused = refusing.refused();
  return said;
}

/// The threads and open files of this process, but for the file of an epoll: Gloo alone has those,
/// and loses one when its thread does not start.
size_t held() {
  const auto entries = [](const char* folder, std::string_view but) {
    const std::filesystem::directory_iterator all(folder);
    return static_cast<size_t>(std::count_if(begin(all), end(all), [&](const auto& entry) {
      std::error_code gone;
      return but.empty() ||
             std::filesystem::read_symlink(entry.path(), gone).string().find(but) == but.npos;
    }));
  };
  return entries("/proc/self/task", "") + entries("/proc/self/fd", "eventpoll");
}

/// Waits until no more is held than before: a thread that opens an engine ends at its timeout.
bool gives_back(size_t before) {
  for (const auto began = std::chrono::steady_clock::now(); held() > before;
       std::this_thread::sleep_for(milliseconds(20)))
    if (std::chrono::steady_clock::now() - began > std::chrono::seconds(20)) return false;
  return true;
}

enum Verdict : int { NotRefused = 0, Refused = 1, Wrong = 2 };

Verdict tried(int64_t nth, bool persists) {
  alarm(100);
  const size_t before = held();
  bool refused = false, again = false;
  const std::vector<std::string> said = meet(nth, persists, kShort, refused);
  const bool given_back = gives_back(before), none = !is_initialized();
  const std::vector<std::string> later = meet(0, false, milliseconds(60000), again);
  const auto count = [&](std::string_view part) {
    return std::count_if(said.begin(), said.end(),
                         [&](const std::string& s) { return s.find(part) != s.npos; });
  };
  const bool right = count(kRight) == 2, named = refused && count("does not start") > 0;
  const bool well = (right || named) && count("foreign") == 0 && none && given_back &&
                    later == std::vector<std::string>(2, std::string(kRight)) && gives_back(before);
  if (!well)
    std::fprintf(stderr,
                 "thread %d%s: rank 0: %s\n  rank 1: %s\n  a default group is left: %d, all is "
                 "given back: %d, held: %zu of %zu\n  later: rank 0: %s\n  rank 1: %s\n",
                 static_cast<int>(nth), persists ? " and all later ones" : "", said[0].c_str(),
                 said[1].c_str(), !none, given_back, held(), before, later[0].c_str(),
                 later[1].c_str());
  return !well ? Wrong : refused ? Refused : NotRefused;
}

}  // namespace

TEST_CASE("a group whose threads do not start says so, and the next one is made") {
  // The store's, and of each rank the watch's, the one that opens the engine, Gloo's, the one that
  // looks after Gloo's peers, and the group's.
  constexpr int64_t kThreads = 1 + 2 * 5;
  struct Child {
    int64_t nth;
    bool persists;
    pid_t process;
  };
  std::vector<Child> children;  // side by side, as some wait for a rank that does not come
  for (const bool persists : {false, true})
    for (int64_t nth = 1; nth <= kThreads + 1; ++nth) {
      const pid_t child = fork();
      REQUIRE(child >= 0);
      if (child == 0) _exit(tried(nth, persists));
      children.push_back({nth, persists, child});
    }
  for (const Child& child : children) {
    CAPTURE(child.nth);
    CAPTURE(child.persists);
    int status = 0;
    REQUIRE(waitpid(child.process, &status, 0) == child.process);
    CHECK(WIFEXITED(status));  // else it hung, or was terminated
    CHECK(WEXITSTATUS(status) == (child.nth <= kThreads ? Refused : NotRefused));
  }
}
#endif
