// The clients of a TcpStore.
#include "halftape/distributed/store/tcp_store.h"

#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>

#include "halftape/core/check.h"
#include "halftape/distributed/store/table.h"
#include "halftape/distributed/store/tcp_server.h"

namespace halftape::distributed {
namespace {

using TcpClock = std::chrono::steady_clock;
// An answer that waits for nobody comes at once, unless the server's machine is overloaded.
constexpr milliseconds kAnswerTime{10000};
// After a deadline, to learn which keys are missing.
constexpr milliseconds kLastAnswerTime{2000};

wire::Writer store_request(StoreCall call, const std::vector<std::string>& keys) {
  wire::Writer request(static_cast<uint8_t>(call));
  for (const std::string& key : keys) {
    check_store_key(key);
    request.text(key);
  }
  HALFTAPE_CHECK(request.bytes().size() <= kLongestStoreMessage, "TcpStore: ", keys.size(),
                 " keys have ", request.bytes().size(), " bytes in all: up to ",
                 kLongestStoreMessage, " are possible; ask for some of them at a time");
  return request;
}

}  // namespace

/// Each running call has a connection of its own, as one may wait for what another one sets.
class TcpStore::Client {
 public:
  Client(std::string host, uint16_t port, bool here, milliseconds timeout)
      : host_(std::move(host)),
        port_(port),
        here_(here),
        timeout_(checked_timeout("TcpStore", timeout, milliseconds(0))) {
    wait_for_server();
  }

  /// What follows Done in the answer. Throws Error, and SocketFailure at the deadline.
  std::string ask(const std::string& what, const wire::Writer& request, milliseconds time) {
    const auto deadline = TcpClock::now() + time;
    try {
      os::Socket socket = idle_or_new(deadline);
      wire::send_message(socket, request.bytes(), deadline);
      std::string answer = wire::receive_message(socket, kLongestStoreMessage, deadline);
      wire::Reader reader(answer);
      const auto kind = static_cast<StoreCall>(reader.number8());
      if (kind != StoreCall::Done && kind != StoreCall::Refused)
        throw wire::Malformed("an unknown answer");
      const std::lock_guard lock(mutex_);
      idle_.push_back(std::move(socket));
      HALFTAPE_CHECK(kind == StoreCall::Done, reader.text(kLongestStoreMessage));
      return answer.substr(1);
    } catch (const os::SocketFailure& failure) {
      if (failure.kind == os::SocketFailure::Kind::TimedOut) throw;
      detail::fail("TcpStore: the server at ", place(), " is gone (", failure.what(), "), during ",
                   what, ": the process that serves the store has ended");
    } catch (const wire::Malformed& malformed) {
      refuse(what, malformed);
    }
  }
  /// parse(reader of the answer to `what`).
  template <class F>
  auto read(const std::string& what, const std::string& answer, const F& parse) const {
    wire::Reader reader(answer);
    try {
      return parse(reader);
    } catch (const wire::Malformed& malformed) {
      refuse(what, malformed);
    }
  }
  [[noreturn]] void refuse(const std::string& what, const wire::Malformed& malformed) const {
    detail::fail("TcpStore: a wrong answer of the server at ", place(), " (", malformed.what(),
                 "), during ", what);
  }
  /// The same, of a call that waits for nobody.
  std::string ask_at_once(const std::string& what, const wire::Writer& request) {
    const milliseconds time = std::max<milliseconds>(timeout_, kAnswerTime);
    try {
      return ask(what, request, time);
    } catch (const os::SocketFailure&) {
      say_stopped(what, time);
    }
  }
  [[noreturn]] void say_stopped(const std::string& what, milliseconds time) const {
    detail::fail("TcpStore: the server at ", place(), " did not answer ", what, " within ",
                 seconds_text(time), ": the process that serves the store is stopped or cut off");
  }
  std::vector<std::string> missing(const std::vector<std::string>& keys) {
    return named_missing(keys, ask_at_once("check()", store_request(StoreCall::Missing, keys)));
  }
  std::vector<std::string> named_missing(const std::vector<std::string>& keys,
                                         const std::string& answer) const {
    return read("check()", answer, [&](wire::Reader& places) {
      std::vector<std::string> named;
      while (!places.at_end()) {
        const uint32_t i = places.number32();
        if (i >= keys.size()) throw wire::Malformed("a key that was not asked for");
        named.push_back(keys[i]);
      }
      return named;
    });
  }
  /// Get or Wait, which may take until the timeout.
  std::string wait(const std::string& what, StoreCall call, const std::vector<std::string>& keys) {
    const milliseconds timeout = timeout_;
    const wire::Writer request = store_request(call, keys);
    try {
      return ask(what, request, timeout);
    } catch (const os::SocketFailure&) {
      // The connection was closed, and with it the server forgot the question.
    }
    const std::vector<std::string> without = missing_after(what, keys, timeout);
    if (!without.empty())
      detail::fail("TcpStore at ", place(), ": ", without_value(without, timeout));
    try {  // All are there, and the timeout was too short for the answer alone.
      return ask(what, request, kLastAnswerTime);
    } catch (const os::SocketFailure&) {
      say_stopped(what, timeout + kLastAnswerTime);
    }
  }

  std::vector<std::string> missing_after(const std::string& what,
                                         const std::vector<std::string>& keys,
                                         milliseconds timeout) {
    try {
      return named_missing(
          keys, ask("check()", store_request(StoreCall::Missing, keys), kLastAnswerTime));
    } catch (const os::SocketFailure&) {
      say_stopped(what, timeout);
    }
  }

  std::string place() const { return host_ + ":" + std::to_string(port_); }
  const std::string host_;
  const uint16_t port_;
  const bool here_;  // the server is of this process
  std::atomic<milliseconds> timeout_;

 private:
  os::Socket greeted(os::Deadline deadline) const {
    os::Socket socket = os::connect_to(here_ ? "" : host_, port_, deadline);
    wire::Writer hello(static_cast<uint8_t>(StoreCall::Hello));
    hello.text(kStoreProtocol);
    wire::send_message(socket, hello.bytes(), deadline);
    if (wire::receive_message(socket, hello.bytes().size(), deadline) != hello.bytes())
      throw wire::Malformed("what listens there is no TcpStore of this version");
    return socket;
  }
  os::Socket idle_or_new(os::Deadline deadline) {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        os::Socket socket = std::move(idle_.back());
        idle_.pop_back();
        return socket;
      }
    }
    return greeted(deadline);
  }
  void wait_for_server() {
    const auto deadline = TcpClock::now() + timeout_.load();
    milliseconds pause(5);
    for (;;) {
      std::string why;
      try {
        const auto now = TcpClock::now();
        idle_.push_back(greeted(std::max(std::min(deadline, now + kAnswerTime), now + pause)));
        return;
      } catch (const std::runtime_error& failure) {
        why = failure.what();
      }
      HALFTAPE_CHECK(TcpClock::now() + pause < deadline, "TcpStore: no server at ", place(),
                     " within ", seconds_text(timeout_), " (", why,
                     "): does the process that serves the store, rank 0, run, and is that its "
                     "address, which no firewall guards?");
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, milliseconds(250));
    }
  }

  std::mutex mutex_;
  std::vector<os::Socket> idle_;
};

TcpStore::TcpStore(std::string host, const TcpStoreOptions& options) {
  HALFTAPE_CHECK(options.port != 0 || options.is_server,
                 "TcpStore: a client needs the server's port, and has 0");
  uint16_t port = options.port;
  if (options.is_server) {
    try {
      server_ = std::make_unique<Server>(port);
    } catch (const os::SocketFailure& failure) {
      detail::fail("TcpStore: ", failure.what(),
                   ": another program, or an earlier run, may have it; take another port");
    }
    port = server_->port();
  }
  client_ = std::make_unique<Client>(std::move(host), port, options.is_server, options.timeout);
}

TcpStore::~TcpStore() = default;

void TcpStore::set(const std::string& key, const std::string& value) {
  check_store_value(key, value);
  wire::Writer request = store_request(StoreCall::Set, {key});
  client_->ask_at_once("set(\"" + key + "\")", request.text(value));
}

std::string TcpStore::get(const std::string& key) {
  const std::string what = "get(\"" + key + "\")",
                    answer = client_->wait(what, StoreCall::Get, {key});
  return client_->read(what, answer, [](wire::Reader& r) { return r.text(kLongestValue); });
}

int64_t TcpStore::add(const std::string& key, int64_t amount) {
  wire::Writer request = store_request(StoreCall::Add, {key});
  request.number64(static_cast<uint64_t>(amount));
  const std::string what = "add(\"" + key + "\")", answer = client_->ask_at_once(what, request);
  return client_->read(what, answer,
                       [](wire::Reader& r) { return static_cast<int64_t>(r.number64()); });
}

bool TcpStore::check(const std::vector<std::string>& keys) {
  return client_->missing(keys).empty();
}

void TcpStore::wait(const std::vector<std::string>& keys) {
  if (!keys.empty()) client_->wait("wait()", StoreCall::Wait, keys);
}

milliseconds TcpStore::timeout() const { return client_->timeout_; }
void TcpStore::set_timeout(milliseconds timeout) {
  client_->timeout_ = checked_timeout("TcpStore", timeout, milliseconds(0));
}
const std::string& TcpStore::host() const { return client_->host_; }
uint16_t TcpStore::port() const { return client_->port_; }

}  // namespace halftape::distributed
