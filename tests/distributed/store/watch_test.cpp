// Ranks that watch each other, as threads.
#include <doctest/doctest.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "halftape/core/machine/os.h"
#include "halftape/core/machine/sockets.h"
#include "halftape/distributed/store/file_store.h"
#include "halftape/distributed/store/watch.h"
#include "halftape/tests/support/clock.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/temp_folder.h"

#if !defined(_WIN32)

using namespace halftape;
using namespace halftape::distributed;
using halftape::testing::Clock, halftape::testing::pause, halftape::testing::since;
using halftape::testing::has;
using halftape::testing::TempFolder;

namespace {

/// A group of threads.
class ThreadGroup {
 public:
  ThreadGroup(int size, milliseconds timeout, milliseconds period)
      : store_(folder_ / "store"), watches(static_cast<size_t>(size)) {
    std::vector<std::thread> threads;
    for (int r = 0; r < size; ++r)
      threads.emplace_back([this, r, size, timeout, period] {
        WatchOptions options;
        options.rank = r, options.size = size, options.timeout = timeout, options.period = period;
        watches[static_cast<size_t>(r)] = std::make_unique<Watch>(
            store_, options,
            [this, r](const std::string& text) {
              const std::lock_guard lock(mutex_);
              failures_[r].push_back(text);
              changed_.notify_all();
            },
            "127.0.0.1");
      });
    for (std::thread& thread : threads) thread.join();
  }
  Watch& operator[](int r) { return *watches[static_cast<size_t>(r)]; }
  /// What rank r was told; empty if nothing comes within 5 s.
  std::string failure(int r) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, milliseconds(5000), [&] { return !failures_[r].empty(); });
    return failures_[r].empty() ? "" : failures_[r].front();
  }
  size_t count(int r) {
    const std::lock_guard lock(mutex_);
    return failures_[r].size();
  }

 private:
  TempFolder folder_;
  FileStore store_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, std::vector<std::string>> failures_;

 public:
  std::vector<std::unique_ptr<Watch>> watches;  // end first: they call what is above
};

Progress in_call(uint64_t number, const std::string& call, uint64_t signature = 1) {
  return {number, signature, true, call};
}

}  // namespace

TEST_CASE("eight ranks meet, work, and leave at different times, and nothing has failed") {
  ThreadGroup group(8, milliseconds(5000), milliseconds(50));
  std::vector<std::thread> threads;
  for (int r = 0; r < 8; ++r)
    threads.emplace_back([&group, r] {
      for (uint64_t n = 1; n < 20; ++n) {
        group[r].set_progress(in_call(n, "all_reduce " + std::to_string(n), n));
        group[r].set_progress({n, n, false, "all_reduce " + std::to_string(n)});
      }
      pause(20 * r);
      const auto start = Clock::now();
      group[r].leave(milliseconds(4000));
      CHECK(since(start) < milliseconds(3000));
      group.watches[static_cast<size_t>(r)].reset();
    });
  for (std::thread& thread : threads) thread.join();
  for (int r = 0; r < 8; ++r) CHECK(group.count(r) == 0);
}

TEST_CASE("a watch of one rank") {
  ThreadGroup group(1, milliseconds(1000), milliseconds(200));
  group[0].set_progress(in_call(1, "broadcast 1"));
  CHECK(group[0].diagnosis(1) == "all other ranks are in it");
  const auto start = Clock::now();
  group[0].leave(milliseconds(5000));
  CHECK(since(start) < milliseconds(2000));
  CHECK(group.count(0) == 0);
}

TEST_CASE("ranks that call different collectives are told so, once each") {
  for (const bool named : {true, false}) {
    ThreadGroup group(4, milliseconds(20000), milliseconds(60));
    const auto start = Clock::now();
    for (int r = 0; r < 4; ++r) {
      if (r == 1)
        group[r].set_progress(in_call(57, named ? "broadcast 57" : "all_reduce 57", 2));
      else
        group[r].set_progress(in_call(57, "all_reduce 57", 1));
    }
    const std::string pid = std::to_string(os::process_id());
    const std::string one = "rank 1 of 4 (host " + os::host_name() + ", pid " + pid + ")";
    const std::string zero = "rank 0 of 4 (host " + os::host_name() + ", pid " + pid + ")";
    const std::string expected =
        named ? one + " is in broadcast 57 and " + zero +
                    " in all_reduce 57: the ranks call different collectives"
              : one + " is in all_reduce 57 and " + zero +
                    " in all_reduce 57: the ranks call it with different shapes, dtypes or options";
    for (int r = 0; r < 4; ++r) CHECK(group.failure(r) == expected);
    CHECK(since(start) >= milliseconds(118));  // two periods
    pause(150);
    for (int r = 0; r < 4; ++r) {
      CHECK(group.count(r) == 1);
      CHECK(group[r].diagnosis(57) == expected);
    }
  }
}

TEST_CASE("ranks that are in different calls for less than two periods have not parted") {
  ThreadGroup group(2, milliseconds(20000), milliseconds(300));
  for (uint64_t n = 1; n <= 3; ++n) {  // in one of them rank 0 tells its progress twice
    group[0].set_progress(in_call(n, "all_reduce", 1));
    group[1].set_progress(in_call(n, "broadcast", 2));
    pause(400);
  }
  CHECK(group.count(0) == 0);
  CHECK(group.count(1) == 0);
}

TEST_CASE("ranks that are in different calls of different numbers have not parted") {
  ThreadGroup group(2, milliseconds(20000), milliseconds(50));
  group[0].set_progress(in_call(31, "all_reduce 31", 1));
  group[1].set_progress(in_call(30, "broadcast 30", 2));
  pause(300);
  CHECK(group.count(0) == 0);
  CHECK(group.count(1) == 0);
}

TEST_CASE("a diagnosis names the ranks that have not come, and what they do") {
  ThreadGroup group(4, milliseconds(20000), milliseconds(200));
  group[0].set_progress(in_call(7, "all_reduce 7"));
  group[1].set_progress({6, 1, false, "all_reduce 6"});
  group[3].set_progress(in_call(8, "barrier 8"));
  const std::string pid = std::to_string(os::process_id());
  for (const int asker : {0, 1}) {
    const std::string text = group[asker].diagnosis(7);
    CHECK(has(text, "rank 2 of 4 (host " + os::host_name() + ", pid " + pid +
                        ") has not come: it has made no collective call"));
    CHECK(has(text, "rank 3 of 4 (host " + os::host_name() + ", pid " + pid +
                        ") is past it: it is in barrier 8"));
    CHECK(has(text, ") has not come: it has ended all_reduce 6") == (asker == 0));
    CHECK(!has(text, "rank 0 of 4"));
  }
}

TEST_CASE("a rank that is needed after it has left is named") {
  ThreadGroup group(3, milliseconds(20000), milliseconds(40));
  for (const int leaver : {2, 0}) {
    if (leaver == 2) group[leaver].set_progress({4, 1, false, "all_reduce 4"});
    group[leaver].leave(milliseconds(0));
  }
  pause(150);
  CHECK(group.count(1) == 0);
  SUBCASE("while rank 0 is there") {
    group[1].set_progress(in_call(5, "all_reduce 5"));
    CHECK(has(group.failure(1), "has left the group before its first collective call, and rank 1"));
    CHECK(has(group.failure(1), "is in all_reduce 5, which needs it"));
  }
  SUBCASE("after rank 0 is gone") {
    group.watches[0].reset();
    group.watches[2].reset();
    pause(200);
    CHECK(group.count(1) == 0);
    group[1].set_progress(in_call(5, "all_reduce 5"));
    CHECK(has(group.failure(1), "rank 0 of 3"));
    CHECK(has(group.failure(1), "has left the group"));
  }
  CHECK(group.count(0) == 0);  // it has said goodbye
}

TEST_CASE("a watch that ends without leave() has left without goodbye") {
  for (const int dropped : {1, 0}) {
    ThreadGroup group(3, milliseconds(20000), milliseconds(50));
    group[dropped].set_progress(in_call(3, "all_gather 3"));
    const auto start = Clock::now();
    group.watches[static_cast<size_t>(dropped)].reset();
    CHECK(since(start) < milliseconds(1000));
    for (int r = 0; r < 3; ++r) {
      if (r == dropped) continue;
      const std::string text = group.failure(r);
      CHECK(has(text, "rank " + std::to_string(dropped) + " of 3"));
      CHECK(has(text, ") has left without goodbye during all_gather 3"));
    }
    CHECK(group.count(dropped) == 0);
  }
}

TEST_CASE("ranks that do not come are named, on both sides") {
  const TempFolder folder;
  FileStore store(folder / "store");
  std::atomic<int> calls{0};  // a constructor that throws says it all
  const auto come = [&](int rank, int size) {
    WatchOptions options;
    options.rank = rank, options.size = size, options.timeout = milliseconds(300);
    options.period = milliseconds(50);
    return testing::message([&] {
      const auto failed = [&calls](const std::string&) { ++calls; };
      Watch(store, options, failed, "127.0.0.1").leave(milliseconds(2000));
    });
  };
  SUBCASE("two of four") {
    std::string zero, three;
    std::thread other([&] { three = come(3, 4); });
    zero = come(0, 4);
    other.join();
    CHECK(zero == "Watch: ranks 1 and 2 of 4 have not come within 0.3 s");
    CHECK(three == zero);
  }
  SUBCASE("rank 0") {
    const std::string text = come(1, 2);
    CHECK(has(text, "Watch: rank 1 of 2 has not reached rank 0 within 0.3 s"));
    CHECK(has(text, "has not written its address"));
  }
  SUBCASE("rank 0 of an earlier run") {
    CHECK(has(come(0, 2), "rank 1 of 2 has not come"));  // leaves its address behind
    const std::string text = come(1, 2);
    CHECK(has(text, "127.0.0.1:"));
    CHECK(has(text, "refused"));
    CHECK(has(text, "is the store that of an earlier run?"));
  }
  SUBCASE("rank 0 comes later than the address of an earlier run") {
    CHECK(has(come(0, 2), "rank 1 of 2 has not come"));
    std::string zero, one;
    std::thread other([&] { one = come(1, 2); });
    pause(100);
    zero = come(0, 2);
    other.join();
    CHECK(zero.empty());
    CHECK(one.empty());
  }
  SUBCASE("another size") {
    std::string zero, one;
    std::thread other([&] { one = come(1, 3); });
    zero = come(0, 2);
    other.join();
    CHECK(has(zero, "rank 1 of 3"));
    CHECK(has(zero, "came to a group of 2"));
    CHECK(one == zero);
  }
  SUBCASE("the same rank twice") {
    std::string texts[3];
    std::vector<std::thread> others;
    for (int i = 0; i < 2; ++i) others.emplace_back([&, i] { texts[i] = come(1, 3); });
    texts[2] = come(0, 3);
    for (std::thread& other : others) other.join();
    for (const std::string& text : texts) CHECK(has(text, "have the same rank"));
  }
  CHECK(calls == 0);
}

TEST_CASE("strangers at the port of a watch are sent away, and harm nobody") {
  const TempFolder folder;
  auto store = std::make_shared<FileStore>(folder / "store");
  std::unique_ptr<Watch> watches[2];
  WatchOptions options;
  options.size = 2, options.timeout = milliseconds(10000), options.period = milliseconds(150);
  std::thread zero(
      [&] { watches[0] = std::make_unique<Watch>(*store, options, nullptr, "127.0.0.1"); });
  const std::string address = store->get("watch/address");
  // 1 byte of version, the host with its length, 1 byte, and the port
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(address[1 + 4 + 9 + 1 + i]); };
  const auto port = static_cast<uint16_t>(byte(0) | byte(1) << 8);
  // A Hello of rank 1 of 2, with another token
  const std::string hello(
      "\x1e\0\0\0\x02"
      "12345678"
      "\1\0\0\0\2\0\0\0"
      "\1\0\0\0h"
      "12345678",
      34);
  std::vector<os::Socket> strangers;
  for (const std::string& text :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(5000, '\xff'), std::string(8, '\0'),
        std::string("\x0c\0\0\0\x02\0\0\0\0\0\0\0\0\0\0\0", 16), hello, std::string()}) {
    strangers.push_back(os::connect_to("127.0.0.1", port, Clock::now() + milliseconds(2000)));
    strangers.back().send_some(text.data(), text.size());
  }
  pause(100);
  WatchOptions other = options;
  other.rank = 1;
  {  // A process of another group finds this one at the address of its own
    FileStore theirs(folder / "theirs");
    std::string old = address;
    old[1 + 4 + 9 + 1 + 4] = static_cast<char>(old[1 + 4 + 9 + 1 + 4] ^ 1);  // the id
    theirs.set("watch/address", old);
    WatchOptions hasty = other;
    hasty.timeout = milliseconds(300);
    CHECK(has(testing::message([&] { Watch(theirs, hasty, nullptr, "127.0.0.1"); }),
              "has not reached rank 0 within 0.3 s"));
  }
  watches[1] = std::make_unique<Watch>(*store, other, nullptr, "127.0.0.1");
  zero.join();
  pause(150);
  CHECK(has(watches[0]->diagnosis(1), "rank 1 of 2"));
  for (os::Socket& stranger : strangers) {  // all are closed now, the silent one, too
    char bytes[256];
    const auto end = Clock::now() + milliseconds(2000);
    ptrdiff_t n = 0;
    while ((n = stranger.receive_some(bytes, sizeof(bytes))) >= 0 && Clock::now() < end) pause(5);
    CHECK(n == -1);
  }
  std::thread leaving([&] { watches[0]->leave(milliseconds(3000)); });
  watches[1]->leave(milliseconds(3000));
  leaving.join();
}

#endif
