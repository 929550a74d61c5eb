// TCP connections. os_sockets.cpp has them on POSIX; elsewhere the functions that make one throw
// SocketFailure.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

namespace halftape::os {

using Deadline = std::chrono::steady_clock::time_point;

/// What went wrong with a connection, for people: "Connection refused".
struct SocketFailure : std::runtime_error {
  enum class Kind : uint8_t { Other, TimedOut, Closed };
  SocketFailure(Kind why, const std::string& text) : std::runtime_error(text), kind(why) {}
  Kind kind;  // Closed: by the other side, or its process ended
};

/// One end of a connection, or one that listens. It never blocks by itself, is not inherited by
/// programs that this one starts, and closes at the end. One thread at a time.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int file) : file_(file) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    if (this != &other) close(), file_ = std::exchange(other.file_, -1);
    return *this;
  }
  explicit operator bool() const { return file_ >= 0; }
  int file() const { return file_; }
  void close();
  /// The port of this end.
  uint16_t port() const;
  /// Sends what fits in the system's buffer now, and returns its size; -1 if the connection is
  /// gone.
  ptrdiff_t send_some(const void* bytes, size_t n);
  /// Receives what is there, up to n > 0 bytes: their number, 0 if nothing is there now, -1 if the
  /// other side closed the connection or it broke.
  ptrdiff_t receive_some(void* bytes, size_t n);
  /// All n bytes until the deadline, or SocketFailure.
  void send_all(const void* bytes, size_t n, Deadline deadline);
  void receive_exactly(void* bytes, size_t n, Deadline deadline);
  /// Tells the other side that no more bytes come; they can still be received.
  void end_sending();

 private:
  int file_ = -1;
};

/// Listens at a port of all addresses of this machine, IPv6 and IPv4; 0: at one that is free.
Socket listen_at(uint16_t port);
/// The next connection. Empty if there is none now, with 0, or with the system's error, such as
/// EMFILE: then the listener stays readable, and is best left alone for a while.
Socket accept_from(const Socket& listener, int& error);
/// Tries all addresses of a host, each with its share of the time; "" is this machine. A name that
/// the system looks up elsewhere may take longer than the deadline.
Socket connect_to(const std::string& host, uint16_t port, Deadline deadline);
/// This machine's address on its way to a host, in digits. Empty where there is no way, and where
/// it is one that no other machine reaches, such as 127.0.0.1. Nothing is sent.
std::string address_towards(const std::string& host);
/// Whether a name or an address is this machine's, so that it can listen there.
bool is_own_address(const std::string& host);

/// Ends a poll_sockets() of another thread, or the next one. Any number of calls are as one.
class Wake {
 public:
  Wake();
  ~Wake();
  Wake(const Wake&) = delete;
  Wake& operator=(const Wake&) = delete;
  void notify() noexcept;

 private:
  friend void poll_sockets(std::span<struct PolledSocket>, Wake*, Deadline);
  [[maybe_unused]] int read_end_ = -1, write_end_ = -1;
};

/// What is asked of a socket, and the answer.
struct PolledSocket {
  int file = -1;  // of a socket; -1 is passed over
  bool for_reading = true, for_writing = false;
  bool readable = false, writable = false;  // a broken connection is both
};
/// Returns once a socket is ready, `wake` (may be null) was notified, or the deadline has come.
void poll_sockets(std::span<PolledSocket> sockets, Wake* wake, Deadline deadline);

}  // namespace halftape::os
