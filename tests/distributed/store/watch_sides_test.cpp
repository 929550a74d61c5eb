// The two ends of a watch, and others that say what no end should: dead ranks, strangers and
// processes of another version.
#include "halftape/distributed/store/watch_sides.h"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "halftape/distributed/store/file_store.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/temp_folder.h"
#include "halftape/tests/support/warnings.h"

using namespace halftape;
using namespace halftape::distributed;
using namespace halftape::distributed::watch;
using halftape::testing::has;
using halftape::testing::message;

namespace {

Member member(int rank, Member::State state, const Progress& progress) {
  Member m;
  m.rank = rank, m.size = 12, m.host = "h", m.pid = 7, m.state = state, m.progress = progress;
  return m;
}

}  // namespace

TEST_CASE("a watch names some ranks, and counts the rest") {
  CHECK(ranks_text({1}) == "rank 1");
  CHECK(ranks_text({1, 2}) == "ranks 1 and 2");
  CHECK(ranks_text({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) == "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
  using State = Member::State;
  std::vector<Member> members;
  members.push_back(member(0, State::Here, {7, 1, true, "all_reduce 7"}));
  members.push_back(member(1, State::Left, {6, 1, false, "all_reduce 6"}));
  members.push_back(member(2, State::Here, {8, 1, true, "barrier 8"}));
  members.push_back(member(3, State::Absent, {}));
  for (int r = 4; r < 12; ++r) members.push_back(member(r, State::Here, {}));
  members[2].heard = milliseconds(2500);
  for (int r = 4; r < 12; ++r) members[static_cast<size_t>(r)].heard = milliseconds(3900);
  const std::string text = who_is_missing(members, 0, 7, milliseconds(4000), milliseconds(250));
  CHECK(has(text,
            "rank 1 of 12 (host h, pid 7) has not come: it has left the group after "
            "all_reduce 6; rank 2 of 12 (host h, pid 7) is past it: it is in barrier 8, and "
            "was last heard 1.5 s ago; rank 3 of 12 has not come: it has made no collective "
            "call; rank 4 of 12 (host h, pid 7) has not come"));
  CHECK(has(text, "rank 8 of 12 (host h, pid 7) has not come"));
  CHECK_FALSE(has(text, "rank 9"));
  CHECK(has(text, "; and 3 more ranks"));
  // Of two equal halves, the one without rank 0 is called the odd one.
  members.resize(4);
  members[1] = member(1, State::Here, {7, 2, true, "broadcast 7"});
  members[2] = member(2, State::Here, {7, 2, true, "broadcast 7"});
  members[3] = member(3, State::Here, {7, 1, true, "all_reduce 7"});
  CHECK(have_parted(members, milliseconds(0)) ==
        "rank 1 of 12 (host h, pid 7) is in broadcast 7 and rank 0 of 12 (host h, pid 7) in "
        "all_reduce 7: the ranks call different collectives");
  Member m;
  m.learn({1, 1, true, "a"}, milliseconds(5));
  m.learn({1, 2, true, "b"}, milliseconds(9));  // the same number, and another call
  CHECK(m.since == milliseconds(9));
  m.learn({1, 2, true, "b"}, milliseconds(12));
  CHECK(m.since == milliseconds(9));
  CHECK(m.heard == milliseconds(12));
}

#if !defined(_WIN32)
namespace {

wire::Writer with_progress(Note kind, const Progress& progress) {
  wire::Writer text = note(kind);
  write_progress(text, progress);
  return text;
}

WatchOptions sides_options(int rank, int size, int timeout = 20000) {
  return {rank, size, milliseconds(timeout), milliseconds(20)};
}

/// Rank 0's end, and connections of all others, on one thread: what has come when it judges is
/// known.
struct Side0 {
  explicit Side0(int size) : server(sides_options(0, size), "zero", 1) {
    for (int r = 1; r < size; ++r) come(r, size);
    listen();
    CHECK(server.judge() == "");
    CHECK(server.all_here);
  }
  /// A connection that says Hello.
  wire::Channel& come(int rank, int size) {
    const Address address = server.address();
    ranks.emplace_back(os::connect_to("127.0.0.1", address.port, Clock::now() + milliseconds(2000)),
                       kLongestNote);
    const auto number = static_cast<uint32_t>(rank);
    ranks.back().send(note(Note::Hello)
                          .number64(address.token)
                          .number32(number)
                          .number32(static_cast<uint32_t>(size))
                          .text("h" + std::to_string(rank))
                          .number64(number + 100)
                          .bytes());
    return ranks.back();
  }
  void say(int rank, const wire::Writer& note) { of(rank).send(note.bytes()); }
  wire::Channel& of(int rank) { return ranks[static_cast<size_t>(rank) - 1]; }
  void listen() {
    for (int i = 0; i < 6; ++i) server.listen(Clock::now() + milliseconds(15));
  }
  std::string hear() {
    listen();
    server.beat({});
    return server.judge();
  }
  Server server;
  std::vector<wire::Channel> ranks;
};

/// An end of rank 1 of 2, and what says it is rank 0 and is not.
struct Side1 {
  explicit Side1(const wire::Writer& greeting, int timeout = 20000) {
    FileStore store(folder / "store");
    Address address;
    address.host = "127.0.0.1", address.port = listener.port(), address.id = 3, address.token = 4;
    store.set(kAddressKey, address.bytes());
    std::atomic<bool> ends{false};
    std::thread other([&] {
      for (int failed = 0; !ends; std::this_thread::sleep_for(milliseconds(2)))
        while (os::Socket guest = os::accept_from(listener, failed)) {
          root = wire::Channel(std::move(guest), kLongestNote);
          root.send(greeting.bytes());
        }
    });
    error = message(
        [&] { client = std::make_unique<Client>(sides_options(1, 2, timeout), "one", 2, store); });
    ends = true;
    other.join();
  }
  static wire::Writer greeting(Note kind = Note::Greeting, const char* protocol = kProtocol) {
    return note(kind).text(protocol).number64(3).text("zero").number64(9);
  }
  std::string hear(const wire::Writer& note) {
    root.send(note.bytes());
    client->listen(Clock::now() + milliseconds(1000));
    return client->judge();
  }
  testing::TempFolder folder;
  os::Socket listener = os::listen_at(0);
  wire::Channel root;
  std::unique_ptr<Client> client;
  std::string error;
};

}  // namespace

TEST_CASE("ranks that die at once are told in one sentence") {
  Side0 all(8);
  all.say(2, with_progress(Note::Beat, {5, 1, true, "all_reduce 5"}));
  CHECK(all.hear() == "");
  for (int r = 1; r < 7; ++r) all.of(r).close();
  CHECK(all.hear() ==
        "rank 1 of 8 (host h1, pid 101) has died before its first collective call; rank 2 of 8 "
        "(host h2, pid 102) has died during all_reduce 5; rank 3 of 8 (host h3, pid 103) has died "
        "before its first collective call; rank 4 of 8 (host h4, pid 104) has died before its "
        "first collective call; and 2 more ranks have died");
}

TEST_CASE("a rank that does not speak the protocol counts as dead") {
  const std::string dead = "rank 2 of 3 (host h2, pid 102) has died before its first collective";
  Side0 all(3);
  SUBCASE("an unknown note") { all.say(2, note(static_cast<Note>(77))); }
  SUBCASE("a second Hello") {
    all.say(2, note(Note::Hello).number64(all.server.address().token).number32(1).number32(3));
  }
  SUBCASE("half of a progress") { all.say(2, note(Note::Beat).number64(4)); }
  SUBCASE("a call with a name that is too long") {
    all.say(2, note(Note::Beat).number64(1).number64(1).number8(1).number32(5000));
  }
  SUBCASE("a note that is too long") {
    all.say(2, note(Note::Failed).text(std::string(70000, 'x')));
  }
  CHECK(has(all.hear(), dead));
}

TEST_CASE("what a rank has missed about itself is passed on, the first text alone") {
  Side0 all(3);
  all.say(1, note(Note::Failed).text("rank 0 is silent"));
  all.say(1, note(Note::Failed).text("another"));
  CHECK(all.hear() == "rank 0 is silent");
}

TEST_CASE("a rank number beyond the group's size is no rank of it") {
  Server server(sides_options(0, 2), "zero", 1);
  os::Socket socket =
      os::connect_to("127.0.0.1", server.address().port, Clock::now() + milliseconds(2000));
  wire::Channel guest(std::move(socket), kLongestNote);
  const uint64_t token = server.address().token;
  guest.send(
      note(Note::Hello).number64(token).number32(9).number32(2).text("h").number64(1).bytes());
  for (int i = 0; i < 4; ++i) server.listen(Clock::now() + milliseconds(15));
  CHECK(has(server.judge(), "rank 9 of 2 (host h, pid 1) came to a group of 2"));
}

TEST_CASE("who has said goodbye is missed by a later call alone, the one with the fewest calls") {
  Side0 all(4);
  all.say(1, with_progress(Note::Goodbye, {5, 1, false, "all_reduce 5"}));
  all.say(2, with_progress(Note::Goodbye, {3, 1, false, "all_reduce 3"}));
  all.say(2, with_progress(Note::Dropped, {3, 1, false, "all_reduce 3"}));  // that was said before
  all.say(3, with_progress(Note::Beat, {3, 1, true, "all_reduce 3"}));
  CHECK(all.hear() == "");
  CHECK(all.hear() == "");  // two periods later
  all.say(3, with_progress(Note::Beat, {4, 1, true, "all_reduce 4"}));
  all.hear();
  CHECK(all.hear() ==
        "rank 2 of 4 (host h2, pid 102) has left the group after all_reduce 3, and rank 3 of 4 "
        "(host h3, pid 103) is in all_reduce 4, which needs it");
}

TEST_CASE("a rank reaches no rank 0 where another program or version listens") {
  for (const wire::Writer& wrong :
       {Side1::greeting(Note::Beat), Side1::greeting(Note::Greeting, "halftape watch 9"),
        note(Note::Greeting), note(Note::Greeting).text(std::string(2000, 'x'))}) {
    const Side1 side(wrong, 200);
    CHECK(has(side.error, "Watch: rank 1 of 2 has not reached rank 0 within 0.2 s (127.0.0.1:"));
  }
  const testing::TempFolder folder;
  FileStore store(folder / "store");
  for (const std::string& address : {std::string("\2"), std::string(), std::string(30, '\xff')}) {
    store.set(kAddressKey, address);
    CHECK(has(message([&] { Client(sides_options(1, 2, 100), "one", 2, store); }),
              "has not reached rank 0 within 0.1 s ("));
  }
}

TEST_CASE("what a rank says of a rank 0 that lies, is silent, or leaves") {
  const std::string zero = "rank 0 of 2 (host zero, pid 9) ";
  Side1 side(Side1::greeting(), 1000);
  REQUIRE(side.error == "");
  CHECK(side.hear(with_progress(Note::Beat, {2, 1, true, "barrier 2"})) == "");
  SUBCASE("an unknown note") {
    CHECK(side.hear(note(static_cast<Note>(99))) == zero + "has died during barrier 2");
  }
  SUBCASE("two failures") {
    CHECK(side.hear(note(Note::Failed).text("first")) == "first");
    CHECK(side.hear(note(Note::Failed).text("second")) == "first");
  }
  SUBCASE("it does not say that all have come") {
    std::string text;
    for (const auto end = Clock::now() + milliseconds(5000); text.empty() && Clock::now() < end;) {
      text = side.hear(with_progress(Note::Beat, {2, 1, true, "barrier 2"}));
      std::this_thread::sleep_for(milliseconds(10));
    }
    CHECK(text == zero + "has not said within 1 s that all ranks have come");
  }
  SUBCASE("it leaves and ends, and this rank calls what needs it") {
    CHECK(side.hear(note(Note::AllHere)) == "");
    CHECK(side.hear(with_progress(Note::Goodbye, {2, 1, false, "barrier 2"})) == "");
    side.root.close();
    CHECK(side.hear(note(Note::Beat)) == "");  // not sent: it is closed
    side.client->beat({2, 1, true, "barrier 2"});
    CHECK(side.client->judge() == "");
    side.client->beat({3, 1, true, "all_reduce 3"});
    CHECK(side.client->judge() == "");  // for two periods
    for (int i = 0; i < 4; ++i) side.client->listen(Clock::now() + milliseconds(20));
    CHECK(side.client->judge() ==
          zero +
              "has left the group after barrier 2, and rank 1 of 2 (host one, pid 2) is in "
              "all_reduce 3, which needs it");
  }
  SUBCASE("it ends after this rank's goodbye") {
    CHECK(side.hear(note(Note::AllHere)) == "");
    side.client->say_goodbye({2, 1, false, "barrier 2"});
    side.root.close();
    side.client->listen(Clock::now() + milliseconds(1000));
    CHECK(side.client->judge() == "");
    CHECK(side.client->all_left);  // there is nobody to wait for
  }
}

TEST_CASE("options that a watch cannot have are refused") {
  const testing::TempFolder folder;
  FileStore store(folder / "store");
  const auto refused = [&](const WatchOptions& options, const std::string& host = "127.0.0.1") {
    return message([&] { Watch(store, options, nullptr, host); });
  };
  for (const auto& [rank, size] : {std::pair(0, 0), std::pair(-1, 2), std::pair(2, 2)})
    CHECK(has(refused({rank, size}),
              "Watch: rank " + std::to_string(rank) + " of " + std::to_string(size)));
  const std::string two = ": the timeout must be two periods or more";
  CHECK(has(refused({0, 1, milliseconds(399), milliseconds(200)}),
            "a timeout of 0.399 s with a period of 0.2 s" + two));
  CHECK(has(refused({0, 1, milliseconds(1), milliseconds(0)}), two));
  CHECK(has(refused({0, 2}, std::string(257, 'a')), "the host's address has 257 bytes"));
  CHECK_FALSE(store.check({kAddressKey}));
}

TEST_CASE("a function that is told of failures, and fails or is none, ends no watch") {
  const testing::TempFolder folder;
  FileStore store(folder / "store");
  const testing::Warnings warnings;
  const auto fails = [](const std::string&) { throw Error("it rains"); };
  std::unique_ptr<Watch> watches[3];
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r)
    threads.emplace_back([&, r] {
      if (r == 1)
        watches[r] = std::make_unique<Watch>(store, sides_options(r, 3), fails, "127.0.0.1");
      else
        watches[r] = std::make_unique<Watch>(store, sides_options(r, 3), nullptr, "127.0.0.1");
    });
  for (std::thread& thread : threads) thread.join();
  watches[2].reset();
  for (const int r : {0, 1}) {
    std::string text;
    for (const auto end = Clock::now() + milliseconds(5000);
         !has(text, "without goodbye") && Clock::now() < end;)
      text = watches[r]->diagnosis(1);
    CHECK(has(text, "rank 2 of 3"));
    CHECK(has(text, "has left without goodbye"));
    watches[r]->leave(milliseconds(5000));  // at once
  }
  for (auto& watch : watches) watch.reset();
  REQUIRE(warnings.seen.size() == 1);
  CHECK(warnings.seen[0] ==
        "Watch: the function that is told of failures has failed itself: it rains");
}
#endif
