// The process that serves the table of a TcpStore.
#include "halftape/distributed/store/tcp_server.h"

#include <exception>
#include <utility>

#include "halftape/core/check.h"
#include "halftape/core/start_thread.h"
#include "halftape/distributed/store/table.h"

namespace halftape::distributed {
namespace {

constexpr milliseconds kGreetingTime{10000};  // for a stranger to say Hello

wire::Writer store_message(StoreCall call) { return wire::Writer(static_cast<uint8_t>(call)); }

}  // namespace

TcpStore::Server::Server(uint16_t port)
    : listener_(os::listen_at(port)),
      port_(listener_.port()),
      thread_(detail::start_thread("TcpStore: the server's thread", [this] { run(); })) {}

TcpStore::Server::~Server() {
  ends_ = true;
  wake_.notify();
  thread_.join();
}

void TcpStore::Server::run() {
  std::vector<os::PolledSocket> polled;
  while (!ends_) {
    const auto now = Clock::now();
    std::erase_if(guests_, [now](const Guest& guest) {
      return !guest.channel.is_open() || (!guest.greeted && now - guest.came > kGreetingTime);
    });
    polled.assign(1, {});
    if (now >= accepts_from_) polled[0].file = listener_.file();
    for (const Guest& guest : guests_) {
      polled.push_back(guest.channel.polled());
      // Nobody gets a second answer before the first one is sent.
      polled.back().for_reading = !guest.channel.has_unsent();
    }
    try {
      os::poll_sockets(polled, &wake_, now + milliseconds(1000));
    } catch (const os::SocketFailure&) {  // no memory, say
      std::this_thread::sleep_for(milliseconds(100));
      continue;
    }
    size_t i = 1;
    for (Guest& guest : guests_) {
      const os::PolledSocket& state = polled[i++];
      try {
        if (state.writable) guest.channel.flush();
        if (state.readable) read(guest);
        answer_all(guest);
      } catch (const std::exception&) {  // it does not speak this protocol, or memory is short
        guest.channel.close();
      }
    }
    if (polled[0].readable) accept_all();
  }
}

void TcpStore::Server::accept_all() {
  int error = 0;
  while (os::Socket socket = os::accept_from(listener_, error))
    guests_.push_back({wire::Channel(std::move(socket), sizeof(kStoreProtocol) + 8), Clock::now()});
  if (error != 0) accepts_from_ = Clock::now() + milliseconds(100);
}

void TcpStore::Server::read(Guest& guest) {
  const bool lives = guest.channel.receive();
  if (!lives) {
    answer_all(guest);  // to what it asked before it went
    guest.channel.close();
  }
}

void TcpStore::Server::answer_all(Guest& guest) {
  while (guest.channel.is_open() && guest.waits.empty() && !guest.channel.has_unsent()) {
    const std::optional<std::string> message = guest.channel.next();
    if (!message) break;
    answer(guest, wire::Reader(*message));
  }
  if (!guest.waits.empty() && guest.channel.has_received())
    throw wire::Malformed("a question before the answer to the last one");
}

std::vector<std::string> TcpStore::Server::keys_in(wire::Reader& request) const {
  std::vector<std::string> keys;
  while (!request.at_end()) keys.push_back(request.text(kLongestKey));
  return keys;
}

void TcpStore::Server::answer(Guest& guest, wire::Reader request) {
  const auto call = static_cast<StoreCall>(request.number8());
  wire::Writer done = store_message(StoreCall::Done);
  if (call == StoreCall::Hello) {
    if (request.text(sizeof(kStoreProtocol)) != kStoreProtocol)
      throw wire::Malformed("another protocol");
    guest.greeted = true;
    guest.channel.set_longest(kLongestStoreMessage);
    return guest.channel.send(store_message(StoreCall::Hello).text(kStoreProtocol).bytes());
  }
  if (!guest.greeted) throw wire::Malformed("no Hello");
  if (call == StoreCall::Set) {
    const std::string key = request.text(kLongestKey);
    table_[key] = request.text(kLongestValue);
    guest.channel.send(done.bytes());
    wake_waiting();
  } else if (call == StoreCall::Add) {
    const std::string key = request.text(kLongestKey);
    const auto amount = static_cast<int64_t>(request.number64());
    const auto found = table_.find(key);
    try {
      const int64_t sum = sum_in_store(key, found == table_.end() ? "0" : found->second, amount);
      table_[key] = std::to_string(sum);
      guest.channel.send(done.number64(static_cast<uint64_t>(sum)).bytes());
    } catch (const Error& error) {
      const std::string why = error.what_without_backtrace();
      guest.channel.send(store_message(StoreCall::Refused).text(why).bytes());
    }
    wake_waiting();
  } else if (call == StoreCall::Missing) {
    const std::vector<std::string> keys = keys_in(request);
    for (size_t i = 0; i < keys.size(); ++i)
      if (!table_.contains(keys[i])) done.number32(static_cast<uint32_t>(i));
    guest.channel.send(done.bytes());
  } else if (call == StoreCall::Get || call == StoreCall::Wait) {
    const std::vector<std::string> keys = keys_in(request);
    guest.wants_value = call == StoreCall::Get;
    if (keys.empty() || (guest.wants_value && keys.size() != 1)) throw wire::Malformed("no key");
    guest.waits.assign(keys.rbegin(), keys.rend());
    answer_if_complete(guest);
  } else {
    throw wire::Malformed("an unknown call");
  }
}

void TcpStore::Server::answer_if_complete(Guest& guest) {
  wire::Writer done = store_message(StoreCall::Done);
  while (!guest.waits.empty()) {
    const auto found = table_.find(guest.waits.back());
    if (found == table_.end()) return;
    if (guest.wants_value) done.text(found->second);
    guest.waits.pop_back();
  }
  guest.channel.send(done.bytes());
}

void TcpStore::Server::wake_waiting() {
  for (Guest& guest : guests_)
    if (!guest.waits.empty()) answer_if_complete(guest);
}

}  // namespace halftape::distributed
