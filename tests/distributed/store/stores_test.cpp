// The tables where processes meet: what all kinds do, and what is said when they cannot.
#include <doctest/doctest.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

#include "halftape/core/machine/sockets.h"
#include "halftape/distributed/store/file_store.h"
#include "halftape/distributed/store/tcp_store.h"
#include "halftape/tests/support/clock.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/temp_folder.h"

using namespace halftape;
using namespace halftape::distributed;
using halftape::testing::Clock, halftape::testing::since;
using halftape::testing::has;
using halftape::testing::message;
using halftape::testing::TempFolder;

namespace {

std::shared_ptr<TcpStore> tcp_server(milliseconds timeout = milliseconds(5000)) {
  TcpStoreOptions options;
  options.port = 0, options.is_server = true, options.timeout = timeout;
  return std::make_shared<TcpStore>("127.0.0.1", options);
}

std::shared_ptr<TcpStore> tcp_client(uint16_t port, milliseconds timeout = milliseconds(5000)) {
  TcpStoreOptions options;
  options.port = port, options.timeout = timeout;
  return std::make_shared<TcpStore>("127.0.0.1", options);
}

/// Runs a case with two objects that see the same table, of each kind.
void with_each_kind(const std::function<void(Store&, Store&)>& run) {
  SUBCASE("files") {
    const TempFolder folder;
    FileStore a(folder / "store", milliseconds(5000)), b(folder / "store", milliseconds(5000));
    run(a, b);
  }
#if !defined(_WIN32)
  SUBCASE("TCP") {
    const auto server = tcp_server(), client = tcp_client(server->port());
    run(*server, *client);
  }
  SUBCASE("TCP, with a prefix") {
    const auto server = tcp_server(), client = tcp_client(server->port());
    PrefixStore a("run/1", server), b("run/1", client);
    run(a, b);
  }
#endif
}

std::string all_bytes() {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  return bytes;
}

}  // namespace

TEST_CASE("a store keeps values of any bytes and lengths") {
  with_each_kind([](Store& a, Store& b) {
    const std::string large(size_t{1} << 20, 'x');
    for (const std::string& value : {std::string("1"), std::string(), all_bytes(), large}) {
      a.set("key", value);
      CHECK((b.get("key") == value));
    }
    CHECK(has(message([&] { a.set("key", large + "x"); }), "1048577 bytes: up to 1048576"));
    CHECK((b.get("key") == large));
  });
}

TEST_CASE("a store tells keys apart, whatever their bytes") {
  with_each_kind([](Store& a, Store& b) {
    const std::vector<std::string> keys{
        "a",        "A",        "a/b", "a%2fb", "..",
        ".",        "con",      "a ",  "a.",    "/a",
        "a\n",      "\xc3\xa9", "k_a", "a/k_b", std::string("a\0b", 3),
        all_bytes()};
    for (size_t i = 0; i < keys.size(); ++i) a.set(keys[i], std::to_string(i));
    for (size_t i = 0; i < keys.size(); ++i) CHECK(b.get(keys[i]) == std::to_string(i));
    CHECK(b.check(keys));
    CHECK(!b.check({"a", "b"}));
    CHECK(b.check({}));
    const std::string longest(1000, '\xff');
    for (const char c : {'a', 'b'}) a.set(longest + c, std::string(1, c));
    for (const char c : {'a', 'b'}) CHECK(b.get(longest + c) == std::string(1, c));
    CHECK(has(message([&] { a.set(std::string(1025, 'k'), ""); }), "1 to 1024 are possible"));
    CHECK(has(message([&] { b.check({std::string(1025, 'k')}); }), "1 to 1024 are possible"));
  });
}

TEST_CASE("get and wait wait for a value that another one sets") {
  with_each_kind([](Store& a, Store& b) {
    std::thread other([&a] {
      std::this_thread::sleep_for(milliseconds(50));
      a.set("one", "1");
      std::this_thread::sleep_for(milliseconds(50));
      a.set("two", "2");
    });
    const auto start = Clock::now();
    CHECK(b.get("one") == "1");
    CHECK(since(start) >= milliseconds(40));
    b.wait({"two", "one"});
    CHECK(since(start) >= milliseconds(90));
    CHECK(since(start) < milliseconds(3000));
    b.wait({});
    other.join();
  });
}

TEST_CASE("a call that waits does not hold up others of the same object") {
  with_each_kind([](Store& a, Store&) {
    std::thread waiting([&a] { CHECK(a.get("late") == "here"); });
    std::this_thread::sleep_for(milliseconds(50));
    a.set("late", "here");
    waiting.join();
  });
}

TEST_CASE("a wait ends at the timeout, and names what is missing") {
  with_each_kind([](Store& a, Store& b) {
    a.set("here", "1");
    b.set_timeout(milliseconds(120));
    CHECK(b.timeout() == milliseconds(120));
    auto start = Clock::now();
    std::string text = message([&] { b.get("absent"); });
    CHECK(since(start) >= milliseconds(115));
    CHECK(since(start) < milliseconds(2000));
    CHECK(has(text, "no value after 0.12 s: "));
    CHECK(has(text, "absent\""));
    text = message([&] { b.wait({"one", "here", "two"}); });
    CHECK(has(text, "one\", "));
    CHECK(has(text, "two\""));
    CHECK(!has(text, "here\""));
    std::vector<std::string> many;
    for (int i = 0; i < 20; ++i) many.push_back("key" + std::to_string(i));
    CHECK(has(message([&] { b.wait(many); }), "key7\" and 12 more"));
    CHECK(b.get("here") == "1");  // it goes on
  });
}

TEST_CASE("with a timeout of 0 a value that is there is read all the same") {
  with_each_kind([](Store& a, Store& b) {
    a.set("here", "1");
    b.set_timeout(milliseconds(0));
    CHECK(b.get("here") == "1");
    b.wait({"here"});
    CHECK(has(message([&] { b.get("absent"); }), "absent\""));
  });
}

TEST_CASE("eight threads add, and no amount is lost") {
  with_each_kind([](Store& a, Store& b) {
    std::vector<std::thread> threads;
    std::atomic<int64_t> largest{0};
    constexpr int kTimes = 25;
    for (int t = 0; t < 8; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < kTimes; ++i) {
          const int64_t sum = (t % 2 ? a : b).add("sum", 3);
          for (int64_t seen = largest; sum > seen && !largest.compare_exchange_weak(seen, sum);) {
          }
        }
      });
    for (std::thread& thread : threads) thread.join();
    CHECK(largest == 8 * kTimes * 3);
    CHECK(a.get("sum") == std::to_string(8 * kTimes * 3));
    CHECK(a.add("sum", -1000) == 8 * kTimes * 3 - 1000);
    CHECK(b.add("fresh", INT64_MAX) == INT64_MAX);
    CHECK(has(message([&] { b.add("fresh", 1); }), "the sum has more than 64 bits"));
    CHECK(b.add("fresh", INT64_MIN) == -1);
    a.set("text", "12a");
    CHECK(has(message([&] { b.add("text", 1); }), "whose value is no number: \"12a\""));
    a.set("text", "");
    CHECK(has(message([&] { b.add("text", 1); }), "whose value is no number: \"\""));
  });
}

TEST_CASE("a reader never sees half a value") {
  with_each_kind([](Store& a, Store& b) {
    std::atomic<bool> ends{false};
    a.set("value", std::string(100'000, 'a'));
    std::thread writer([&] {
      for (int i = 0; !ends; ++i)
        a.set("value", std::string(100'000 + i % 7, static_cast<char>('a' + i % 26)));
    });
    for (int i = 0; i < 100; ++i) {
      const std::string value = b.get("value");
      CHECK(value.size() >= 100'000);
      CHECK(value.find_first_not_of(value[0]) == std::string::npos);
    }
    ends = true;
    writer.join();
  });
}

TEST_CASE("prefixes keep users of one store apart") {
  const TempFolder folder;
  const auto store = std::make_shared<FileStore>(folder / "store", milliseconds(5000));
  PrefixStore a("a", store), b("b", store);
  a.set("key", "1");
  b.set("key", "2");
  CHECK(a.get("key") == "1");
  CHECK(store->get("b/key") == "2");
  CHECK(a.check({"key"}));
  CHECK(!a.check({"key", "b"}));
  b.set_timeout(milliseconds(70));
  CHECK(store->timeout() == milliseconds(70));
  CHECK(has(message([&] { b.wait({"none"}); }), "\"b/none\""));
  CHECK(has(message([&] { PrefixStore("a", nullptr); }), "PrefixStore: the store is null"));
}

#if !defined(_WIN32)
TEST_CASE("bytes of strangers end their own connection, and nothing else") {
  const auto server = tcp_server();
  server->set("key", "1");
  const auto connect = [&] {
    return os::connect_to("127.0.0.1", server->port(), Clock::now() + milliseconds(2000));
  };
  const os::Socket silent = connect();
  const std::string hello("\x15\0\0\0\x01\x10\0\0\0halftape store 1", 25);
  os::Socket half = connect();
  half.send_some(hello.data(), 9);
  const std::vector<std::string> strange{
      "GET / HTTP/1.1\r\nHost: store\r\n\r\n",
      std::string(100'000, '\xff'),
      std::string(4, '\0'),
      std::string("\x08\0\0\0\x03\x03\0\0\0key", 12),                  // get("key") before Hello
      hello + std::string("\x0a\0\0\0\x02\x01\0\0\0k\x05\0\0\0", 14),  // a value that does not come
      std::string("\x05\0\0\0\x01\x04\0\0\0", 9),                      // shorter than its text
      std::string("\x15\0\0\0\x01\x10\0\0\0halftape store 2", 25),     // another version
      hello + std::string("\xff\xff\xff\xff", 4),                      // 4 GiB follow
      hello + std::string("\x01\0\0\0\x63", 5),                        // an unknown call
      hello + std::string("\x05\0\0\0\x03\0\0\0\xff", 9),              // a text of 4 GiB
      hello + std::string("\x01\0\0\0\x03", 5),                        // get of no key
      hello + std::string("\x0b\0\0\0\x03\x01\0\0\0k\x01\0\0\0l", 15),  // get of two keys
      hello + std::string("\x06\0\0\0\x03\x01\0\0\0z\x06\0\0\0", 14)    // a call while one waits
  };
  for (const std::string& bytes : strange) {
    os::Socket stranger = connect();
    try {
      stranger.send_all(bytes.data(), bytes.size(), Clock::now() + milliseconds(2000));
    } catch (const os::SocketFailure&) {  // it was closed before all was sent
    }
    const auto end = Clock::now() + milliseconds(3000);
    char answer[256];
    ptrdiff_t n = 0, received = 0;
    for (; (n = stranger.receive_some(answer, sizeof(answer))) >= 0 && Clock::now() < end;
         received += n)
      std::this_thread::sleep_for(milliseconds(2));
    CHECK(n == -1);
    if (!bytes.starts_with(hello)) CHECK(received == 0);  // no greeting, and no value
  }
  const auto client = tcp_client(server->port());
  const auto start = Clock::now();
  CHECK(client->get("key") == "1");
  CHECK(since(start) < milliseconds(1000));  // nobody waits for the silent ones
  half.send_some(hello.data() + 9, hello.size() - 9);
  char answer[25];
  half.receive_exactly(answer, sizeof(answer), Clock::now() + milliseconds(2000));
  CHECK(std::string(answer, sizeof(answer)) == hello);
}

TEST_CASE("a client that reads no answers takes neither the server's memory nor its time") {
  const auto server = tcp_server();
  server->set("k", std::string(size_t{1} << 20, 'x'));
  os::Socket greedy =
      os::connect_to("127.0.0.1", server->port(), Clock::now() + milliseconds(2000));
  std::string bytes("\x15\0\0\0\x01\x10\0\0\0halftape store 1", 25);
  for (int i = 0; i < 2000; ++i) bytes += std::string("\x06\0\0\0\x03\x01\0\0\0k", 10);  // get("k")
  try {
    greedy.send_all(bytes.data(), bytes.size(), Clock::now() + milliseconds(200));
  } catch (const os::SocketFailure&) {  // the server has stopped to read
  }
  const auto start = Clock::now();
  for (int i = 0; i < 20; ++i) server->add("n", 1);
  CHECK(since(start) < milliseconds(2000));
}

TEST_CASE("clients learn that the server is gone, and why none is there") {
  auto server = tcp_server();
  const uint16_t port = server->port();
  const auto client = tcp_client(port);
  std::string waiting;
  std::thread other([&] { waiting = message([&] { client->get("never"); }); });
  std::this_thread::sleep_for(milliseconds(100));
  const auto start = Clock::now();
  server.reset();
  other.join();
  CHECK(since(start) < milliseconds(1000));
  const std::string place = "127.0.0.1:" + std::to_string(port);
  CHECK(has(waiting, "TcpStore: the server at " + place + " is gone"));
  CHECK(has(waiting, "get(\"never\")"));
  CHECK(has(message([&] { client->set("key", "1"); }), "is gone"));
  const std::string text = message([&] { tcp_client(port, milliseconds(200)); });
  CHECK(has(text, "TcpStore: no server at " + place + " within 0.2 s (Connection refused)"));
  CHECK(has(message([&] { tcp_client(0); }), "a client needs the server's port"));
}

TEST_CASE("wrong answers of what only looks like a server are errors that name it") {
  const std::string hello("\x15\0\0\0\x01\x10\0\0\0halftape store 1", 25);
  const os::Socket listener = os::listen_at(0);
  std::atomic<bool> ends{false};
  std::string greeting = hello, answer;
  std::mutex mutex;
  std::thread fake([&] {  // greets everybody, and gives each the same answer
    std::vector<std::pair<os::Socket, size_t>> guests;
    for (int error = 0; !ends; std::this_thread::sleep_for(milliseconds(1))) {
      while (os::Socket guest = os::accept_from(listener, error))
        guests.emplace_back(std::move(guest), 0);
      const std::lock_guard lock(mutex);
      for (auto& [guest, asked] : guests) {
        char bytes[256];
        if (guest.receive_some(bytes, sizeof(bytes)) <= 0) continue;
        const std::string& text = asked++ == 0 ? greeting : answer;
        guest.send_some(text.data(), text.size());
      }
    }
  });
  const auto say = [&](const std::string& first, const std::string& then) {
    const std::lock_guard lock(mutex);
    greeting = first, answer = then;
  };
  const std::string place = "127.0.0.1:" + std::to_string(listener.port());
  const std::string wrong = "TcpStore: a wrong answer of the server at " + place;
  say(hello, std::string("\x01\0\0\0\x63", 5));  // neither done nor refused
  CHECK(has(message([&] { tcp_client(listener.port())->set("k", "1"); }),
            wrong + " (an unknown answer), during set(\"k\")"));
  say(hello, std::string("\xff\xff\xff\xff", 4));  // 4 GiB follow
  CHECK(has(message([&] { tcp_client(listener.port())->get("k"); }),
            wrong + " (a message is too long), during get(\"k\")"));
  say(hello, std::string(4, '\0'));
  CHECK(has(message([&] { tcp_client(listener.port())->add("k", 1); }),
            wrong + " (a message is too short), during add(\"k\")"));
  say(hello, std::string("\x05\0\0\0\x07\x02\0\0\0", 9));  // the third of one key is missing
  CHECK(has(message([&] { tcp_client(listener.port())->check({"k"}); }),
            wrong + " (a key that was not asked for), during check()"));
  say(hello, std::string("\x01\0\0\0\x07", 5));  // done, and nothing more
  CHECK(has(message([&] { tcp_client(listener.port())->get("k"); }),
            wrong + " (a message is too short), during get(\"k\")"));
  CHECK(has(message([&] { tcp_client(listener.port())->add("k", 1); }),
            wrong + " (a message is too short), during add(\"k\")"));
  say(std::string("\x15\0\0\0\x01\x10\0\0\0halftape store 2", 25), "");
  CHECK(has(message([&] { tcp_client(listener.port(), milliseconds(100)); }),
            "what listens there is no TcpStore of this version"));
  ends = true;
  fake.join();
  const auto server = tcp_server();
  const std::vector<std::string> many(5000, std::string(1000, 'k'));
  CHECK(has(message([&] { server->check(many); }),
            "5000 keys have 5020001 bytes in all: up to 4194304 are possible"));
  server->set("k", "1");
  CHECK(server->check({"k"}));
}

TEST_CASE("a client waits for a server that comes later") {
  // Of an earlier server, whose end of a connection lingers in the system
  auto earlier = tcp_server();
  const uint16_t port = earlier->port();
  const auto its_client = tcp_client(port);
  earlier.reset();
  std::string seen;
  std::thread client([&] { seen = tcp_client(port)->get("key"); });
  std::this_thread::sleep_for(milliseconds(150));
  TcpStoreOptions options;
  options.port = port, options.is_server = true;
  TcpStore server("127.0.0.1", options);
  server.set("key", "1");
  client.join();
  CHECK(seen == "1");
  CHECK(server.port() == port);
  CHECK(server.host() == "127.0.0.1");
}

TEST_CASE("a port that is taken, and one where somebody else listens") {
  const auto server = tcp_server();
  TcpStoreOptions options;
  options.port = server->port(), options.is_server = true;
  CHECK(has(message([&] { TcpStore("127.0.0.1", options); }),
            "cannot listen at port " + std::to_string(server->port())));
  const os::Socket other = os::listen_at(0);
  const auto start = Clock::now();
  CHECK(has(message([&] { tcp_client(other.port(), milliseconds(300)); }), "no server at"));
  CHECK(since(start) < milliseconds(3000));
}

TEST_CASE("a machine's address on its way to a host, unless it is one for itself alone") {
  for (const char* host :
       {"", "localhost", "127.0.0.1", "127.1.2.3", "::1", "no.such.name.invalid"})
    CHECK(os::address_towards(host) == "");
  const std::string own = os::address_towards("192.0.2.1");  // an address that nobody has
  if (!own.empty()) CHECK(os::address_towards(own) == own);
  if (!own.empty()) CHECK(os::is_own_address(own));
  CHECK(os::is_own_address("127.0.0.1"));
  for (const char* host : {"192.0.2.1", "no.such.name.invalid"}) CHECK(!os::is_own_address(host));
}

TEST_CASE("a deadline holds for a name that has no address, or a machine that is silent") {
  CHECK_THROWS_AS(os::connect_to("no-such-host.invalid", 1, Clock::now() + milliseconds(200)),
                  os::SocketFailure);
  os::Wake wake;
  std::thread other([&wake] {
    std::this_thread::sleep_for(milliseconds(50));
    wake.notify();
  });
  auto start = Clock::now();
  os::poll_sockets({}, &wake, start + milliseconds(5000));
  CHECK(since(start) < milliseconds(2000));
  other.join();
  start = Clock::now();
  os::poll_sockets({}, &wake, start + milliseconds(60));
  CHECK(since(start) >= milliseconds(60));
}
#endif
