// Messages over a connection: 4 bytes of length, little-endian, and as many bytes. What comes from
// outside is measured before it is believed.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "halftape/core/check.h"
#include "halftape/core/machine/sockets.h"

namespace halftape::distributed::wire {

/// The bytes do not follow the protocol.
struct Malformed : Error {
  using Error::Error;
};

/// The text of a message, put together.
class Writer {
 public:
  explicit Writer(uint8_t kind) { number8(kind); }
  Writer& number8(uint8_t value) { return unsigned_number(value, 1); }
  Writer& number32(uint32_t value) { return unsigned_number(value, 4); }
  Writer& number64(uint64_t value) { return unsigned_number(value, 8); }
  Writer& text(std::string_view value) {
    number32(static_cast<uint32_t>(value.size()));
    bytes_.append(value);
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  Writer& unsigned_number(uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) bytes_ += static_cast<char>(value >> (8 * i) & 0xff);
    return *this;
  }
  std::string bytes_;
};

/// The same, taken apart. Throws Malformed where the message is too short.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}
  uint8_t number8() { return static_cast<uint8_t>(unsigned_number(1)); }
  uint32_t number32() { return static_cast<uint32_t>(unsigned_number(4)); }
  uint64_t number64() { return unsigned_number(8); }
  std::string text(size_t at_most) {
    const size_t n = number32();
    if (n > at_most) throw Malformed("a text is too long");
    return std::string(take(n));
  }
  bool at_end() const { return rest_.empty(); }

 private:
  std::string_view take(size_t n) {
    if (n > rest_.size()) throw Malformed("a message is too short");
    const std::string_view taken = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return taken;
  }
  uint64_t unsigned_number(int bytes) {
    const std::string_view taken = take(static_cast<size_t>(bytes));
    uint64_t value = 0;
    for (int i = bytes; i-- > 0;) value = value << 8 | static_cast<uint8_t>(taken[i]);
    return value;
  }
  std::string_view rest_;
};

/// A connection that sends and receives whole messages, and never waits for the other side.
class Channel {
 public:
  Channel() = default;
  Channel(os::Socket socket, size_t longest) : socket_(std::move(socket)), longest_(longest) {}
  bool is_open() const { return static_cast<bool>(socket_); }
  void close() { socket_.close(); }
  os::Socket& socket() { return socket_; }
  /// Of messages that come.
  void set_longest(size_t bytes) { longest_ = bytes; }
  /// Sends a message, or keeps what does not fit now for flush().
  void send(std::string_view message);
  void flush();
  bool has_unsent() const { return !unsent_.empty(); }
  /// Takes in what is there, up to one message more than the longest. False once the other side has
  /// closed, or the connection is broken; what came before is still there for next().
  bool receive();
  /// The next whole message, if it is there. Throws Malformed for one that is too long.
  std::optional<std::string> next();
  /// Bytes that next() has not taken.
  bool has_received() const { return !received_.empty(); }
  /// What poll_sockets() should wait for.
  os::PolledSocket polled() const {
    os::PolledSocket p;
    p.file = socket_.file(), p.for_writing = has_unsent();
    return p;
  }

 private:
  os::Socket socket_;
  size_t longest_ = 0;
  std::string unsent_, received_;
};

/// One message after the other, with a deadline. Throw os::SocketFailure, and Malformed.
void send_message(os::Socket& socket, std::string_view message, os::Deadline deadline);
std::string receive_message(os::Socket& socket, size_t longest, os::Deadline deadline);

}  // namespace halftape::distributed::wire
