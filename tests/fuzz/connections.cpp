// What a stranger, or a process whose memory is broken, sends to the server of a TcpStore.
#include <chrono>
#include <memory>
#include <string>

#include "halftape/core/machine/sockets.h"
#include "halftape/distributed/store/tcp_server.h"
#include "target.h"

namespace halftape::fuzz {
namespace {

using distributed::StoreCall;
using distributed::TcpStore;
using Clock = std::chrono::steady_clock;

distributed::wire::Writer call(StoreCall kind) {
  return distributed::wire::Writer(static_cast<uint8_t>(kind));
}
/// As it goes over the connection.
std::string sent(const distributed::wire::Writer& message) {
  const auto n = static_cast<uint32_t>(message.bytes().size());
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes += static_cast<char>(n >> 8 * i & 0xff);
  return bytes + message.bytes();
}
std::string hello() { return sent(call(StoreCall::Hello).text(distributed::kStoreProtocol)); }

std::unique_ptr<TcpStore> make_store() {
  return std::make_unique<TcpStore>(
      "127.0.0.1", distributed::TcpStoreOptions{
                       .port = 0, .is_server = true, .timeout = distributed::milliseconds(10000)});
}

/// The first byte says whether the stranger says Hello first. The server must close the connection,
/// and go on serving others.
bool talk_to_store(std::string_view input) {
  static std::unique_ptr<TcpStore> store;
  static int64_t talks = 0;
  if (talks % 1000 == 0) store = make_store();  // without what strangers have left in the old one
  const int64_t sum = talks++ % 1000 + 1;
  Reader in(input);
  const bool greets = in.byte() % 2 == 0;
  const std::string bytes =
      (greets ? hello() : "") + std::string(input.substr(input.empty() ? 0 : 1));
  const os::Deadline end = Clock::now() + std::chrono::seconds(10);
  size_t answered = 0;
  try {
    os::Socket stranger = os::connect_to("127.0.0.1", store->port(), end);
    try {
      stranger.send_all(bytes.data(), bytes.size(), end);
    } catch (const os::SocketFailure&) {  // closed before all was sent
    }
    stranger.end_sending();
    char answer[4096];
    for (ptrdiff_t n = 0; (n = stranger.receive_some(answer, sizeof(answer))) >= 0;) {
      answered += static_cast<size_t>(n);
      if (Clock::now() > end) throw Finding("the store keeps a connection that has ended");
      os::PolledSocket wait{.file = stranger.file()};
      if (n == 0) os::poll_sockets({&wait, 1}, nullptr, end);
    }
  } catch (const os::SocketFailure& failure) {
    throw Finding(std::string("no connection: ") + failure.what());
  }
  if (store->add("talks that nobody else counts", 1) != sum)
    throw Finding("the store has forgotten what it counted");
  return answered > 0;
}

std::vector<std::string> store_seeds() {
  const std::string greeted("\0", 1), silent("\1", 1);
  return {
      silent + hello() + sent(call(StoreCall::Set).text("a").text("1")),
      greeted + sent(call(StoreCall::Set).text("a").text("1")) +
          sent(call(StoreCall::Add).text("a").number64(2)) + sent(call(StoreCall::Get).text("a")),
      greeted + sent(call(StoreCall::Missing).text("a").text("b")),
      greeted + sent(call(StoreCall::Set).text("b").text("x")) +
          sent(call(StoreCall::Wait).text("b")) + sent(call(StoreCall::Add).text("b").number64(1)),
      greeted + sent(call(StoreCall::Wait).text("missing").text("a"))};
}

bool has_sockets() {
  try {
    make_store();
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

std::span<const Target> connection_targets() {
  static const Target kTargets[] = {{"store", &talk_to_store, &store_seeds}};
  static const bool sockets = has_sockets();
  return std::span(kTargets).first(sockets ? 1 : 0);
}

}  // namespace halftape::fuzz
