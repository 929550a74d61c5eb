// TCP on POSIX. Other systems have none here: nothing connects or listens.
#include "halftape/core/machine/sockets.h"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <vector>

#if (defined(__unix__) || defined(__APPLE__)) && !defined(__EMSCRIPTEN__)
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <climits>
#include <cstring>
#include <memory>

namespace halftape::os {
namespace {

using SocketClock = std::chrono::steady_clock;

std::string system_message(int error) { return std::generic_category().message(error); }

[[noreturn]] void socket_failure(const std::string& what) {
  throw SocketFailure(SocketFailure::Kind::Other, what);
}

/// In the milliseconds of poll(), rounded up, so that it does not spin for the last one.
int milliseconds_until(Deadline deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - SocketClock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, INT_MAX));
}

/// False at the deadline.
bool wait_for_one(int file, short events, Deadline deadline) {
  for (;;) {
    pollfd one{file, events, 0};
    const int n = ::poll(&one, 1, milliseconds_until(deadline));
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) socket_failure("poll: " + system_message(errno));
    if (SocketClock::now() >= deadline) return false;
  }
}

void never_block(int file) {
  (void)::fcntl(file, F_SETFD, FD_CLOEXEC);
  (void)::fcntl(file, F_SETFL, ::fcntl(file, F_GETFL) | O_NONBLOCK);
}

void set_option(int file, int level, int name) {
  const int on = 1;
  (void)::setsockopt(file, level, name, &on, sizeof(on));
}

int new_socket(int family) {
#if defined(SOCK_CLOEXEC)
  // At once: another thread may start a program before a second call.
  const int file = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
#else
  const int file = ::socket(family, SOCK_STREAM, 0);
#endif
  if (file >= 0) never_block(file);
  return file;
}

void prepare_connection(int file) {
  never_block(file);
  set_option(file, IPPROTO_TCP, TCP_NODELAY);  // messages are small, and somebody waits
  set_option(file, SOL_SOCKET, SO_KEEPALIVE);  // a machine without power closes nothing
#if defined(SO_NOSIGPIPE)
  set_option(file, SOL_SOCKET, SO_NOSIGPIPE);
#endif
}

#if defined(MSG_NOSIGNAL)
constexpr int kSendFlags = MSG_NOSIGNAL;
#else
constexpr int kSendFlags = 0;
#endif

/// 0, or the error, with which a listener of this family cannot be had.
int try_to_listen(int family, uint16_t port, Socket& listener) {
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(port);
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(port);
  const bool is_six = family == AF_INET6;
  Socket made(new_socket(family));
  if (!made) return errno;
  set_option(made.file(), SOL_SOCKET, SO_REUSEADDR);
  if (is_six) {
    const int off = 0;  // IPv4 comes here, too
    if (::setsockopt(made.file(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) != 0) return errno;
  }
  const auto* const address =
      is_six ? reinterpret_cast<sockaddr*>(&six) : reinterpret_cast<sockaddr*>(&four);
  if (::bind(made.file(), address, is_six ? sizeof(six) : sizeof(four)) != 0 ||
      ::listen(made.file(), SOMAXCONN) != 0)
    return errno;
  listener = std::move(made);
  return 0;
}

/// A port that nobody listens at, but that the system picks for this end of the connection,
/// connects to itself.
bool met_itself(int file) {
  sockaddr_storage here{}, there{};
  socklen_t m = sizeof(here), n = sizeof(there);
  return ::getsockname(file, reinterpret_cast<sockaddr*>(&here), &m) == 0 &&
         ::getpeername(file, reinterpret_cast<sockaddr*>(&there), &n) == 0 && m == n &&
         std::memcmp(&here, &there, m) == 0;
}

/// Empty if it does not come about until the deadline; `why_not` says why.
Socket try_to_connect(const addrinfo& to, Deadline deadline, std::string& why_not) {
  Socket socket(new_socket(to.ai_family));
  if (!socket) return why_not = system_message(errno), Socket();
  prepare_connection(socket.file());
  if (::connect(socket.file(), to.ai_addr, to.ai_addrlen) != 0) {
    // An interrupted connect() goes on by itself.
    if (errno != EINPROGRESS && errno != EINTR) return why_not = system_message(errno), Socket();
    if (!wait_for_one(socket.file(), POLLOUT, deadline)) return why_not = "no answer", Socket();
    int error = 0;
    socklen_t n = sizeof(error);
    if (::getsockopt(socket.file(), SOL_SOCKET, SO_ERROR, &error, &n) != 0) error = errno;
    if (error != 0) return why_not = system_message(error), Socket();
  }
  if (met_itself(socket.file())) return why_not = system_message(ECONNREFUSED), Socket();
  return socket;
}

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses addresses_of(const std::string& host, uint16_t port, int type) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = type;
  wanted.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(host.empty() ? nullptr : host.c_str(),
                                   std::to_string(port).c_str(), &wanted, &found);
  if (failed != 0)
    socket_failure(failed == EAI_SYSTEM ? system_message(errno) : ::gai_strerror(failed));
  return {found, &::freeaddrinfo};
}

bool is_of_this_machine_alone(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(address);
    return ntohl(four.sin_addr.s_addr) >> 24 == 127;
  }
  const in6_addr& six = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&six) || IN6_IS_ADDR_LINKLOCAL(&six);
}

}  // namespace

void Socket::close() {
  if (file_ >= 0) ::close(std::exchange(file_, -1));
}

uint16_t Socket::port() const {
  sockaddr_storage here{};
  socklen_t n = sizeof(here);
  if (::getsockname(file_, reinterpret_cast<sockaddr*>(&here), &n) != 0)
    socket_failure("getsockname: " + system_message(errno));
  return here.ss_family == AF_INET6 ? ntohs(reinterpret_cast<sockaddr_in6*>(&here)->sin6_port)
                                    : ntohs(reinterpret_cast<sockaddr_in*>(&here)->sin_port);
}

ptrdiff_t Socket::send_some(const void* bytes, size_t n) {
  for (;;) {
    const ssize_t sent = ::send(file_, bytes, n, kSendFlags);
    if (sent >= 0) return sent;
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS ? 0 : -1;
  }
}

ptrdiff_t Socket::receive_some(void* bytes, size_t n) {
  for (;;) {
    const ssize_t received = ::recv(file_, bytes, n, 0);
    if (received > 0) return received;
    if (received == 0) return -1;
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
  }
}

void Socket::send_all(const void* bytes, size_t n, Deadline deadline) {
  const char* from = static_cast<const char*>(bytes);
  while (n > 0) {
    const ptrdiff_t sent = send_some(from, n);
    if (sent < 0)
      throw SocketFailure(SocketFailure::Kind::Closed, "the other side closed the connection");
    from += sent;
    n -= static_cast<size_t>(sent);
    if (n > 0 && !wait_for_one(file_, POLLOUT, deadline))
      throw SocketFailure(SocketFailure::Kind::TimedOut, "the other side takes no more bytes");
  }
}

void Socket::receive_exactly(void* bytes, size_t n, Deadline deadline) {
  char* to = static_cast<char*>(bytes);
  while (n > 0) {
    const ptrdiff_t received = receive_some(to, n);
    if (received < 0)
      throw SocketFailure(SocketFailure::Kind::Closed, "the other side closed the connection");
    to += received;
    n -= static_cast<size_t>(received);
    if (received == 0 && !wait_for_one(file_, POLLIN, deadline))
      throw SocketFailure(SocketFailure::Kind::TimedOut, "no answer");
  }
}

void Socket::end_sending() { (void)::shutdown(file_, SHUT_WR); }

Socket listen_at(uint16_t port) {
  Socket listener;
  int error = try_to_listen(AF_INET6, port, listener);
  // A port that another program has is not ours, even where that program listens in IPv6 alone.
  if (error != 0 && error != EADDRINUSE && error != EACCES)
    error = try_to_listen(AF_INET, port, listener);
  if (error != 0)
    socket_failure("cannot listen at port " + std::to_string(port) + ": " + system_message(error));
  return listener;
}

Socket accept_from(const Socket& listener, int& error) {
  error = 0;
#if defined(SOCK_CLOEXEC) && !defined(__APPLE__)
  const int file = ::accept4(listener.file(), nullptr, nullptr, SOCK_CLOEXEC);
#else
  const int file = ::accept(listener.file(), nullptr, nullptr);
#endif
  if (file >= 0) {
    prepare_connection(file);
    return Socket(file);
  }
  const bool nobody = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ||
                      errno == ECONNABORTED || errno == EPROTO;
  if (!nobody) error = errno;
  return Socket();
}

Socket connect_to(const std::string& host, uint16_t port, Deadline deadline) {
  const Addresses addresses = addresses_of(host, port, SOCK_STREAM);
  int left = 0;
  for (const addrinfo* a = addresses.get(); a; a = a->ai_next) ++left;
  std::string why_not = "it has no address";
  for (const addrinfo* a = addresses.get(); a; a = a->ai_next) {
    const Deadline now = SocketClock::now();
    const Deadline share = now + std::max(deadline - now, SocketClock::duration(0)) / left--;
    if (Socket socket = try_to_connect(*a, share, why_not)) return socket;
  }
  throw SocketFailure(
      SocketClock::now() >= deadline ? SocketFailure::Kind::TimedOut : SocketFailure::Kind::Other,
      why_not);
}

std::string address_towards(const std::string& host) {
  constexpr uint16_t kAnyPort = 9;  // a datagram socket asks nobody whether it is open
  try {
    const Addresses addresses = addresses_of(host, kAnyPort, SOCK_DGRAM);
    for (const addrinfo* a = addresses.get(); a; a = a->ai_next) {
      const Socket socket(::socket(a->ai_family, a->ai_socktype, a->ai_protocol));
      sockaddr_storage own{};
      socklen_t size = sizeof(own);
      auto* const address = reinterpret_cast<sockaddr*>(&own);
      char digits[NI_MAXHOST];
      if (socket && ::connect(socket.file(), a->ai_addr, a->ai_addrlen) == 0 &&
          ::getsockname(socket.file(), address, &size) == 0 && !is_of_this_machine_alone(own) &&
          ::getnameinfo(address, size, digits, sizeof(digits), nullptr, 0, NI_NUMERICHOST) == 0)
        return digits;
    }
  } catch (const SocketFailure&) {  // NOLINT: a name that leads nowhere
  }
  return {};
}

bool is_own_address(const std::string& host) {
  try {
    const Addresses addresses = addresses_of(host, 0, SOCK_STREAM);
    for (const addrinfo* a = addresses.get(); a; a = a->ai_next) {
      const Socket socket(::socket(a->ai_family, a->ai_socktype, a->ai_protocol));
      if (socket && ::bind(socket.file(), a->ai_addr, a->ai_addrlen) == 0) return true;
    }
  } catch (const SocketFailure&) {  // NOLINT: a name that leads nowhere
  }
  return false;
}

Wake::Wake() {
  int ends[2];
#if defined(__linux__)
  const int failed = ::pipe2(ends, O_CLOEXEC | O_NONBLOCK);
#else
  const int failed = ::pipe(ends);
#endif
  if (failed != 0) socket_failure("pipe: " + system_message(errno));
  read_end_ = ends[0], write_end_ = ends[1];
  never_block(read_end_), never_block(write_end_);
}

Wake::~Wake() { ::close(read_end_), ::close(write_end_); }

void Wake::notify() noexcept {
  const char one = 1;
  while (::write(write_end_, &one, 1) < 0 && errno == EINTR) {
  }  // a full pipe wakes, too
}

void poll_sockets(std::span<PolledSocket> sockets, Wake* wake, Deadline deadline) {
  std::vector<pollfd> files;
  files.reserve(sockets.size() + 1);
  for (PolledSocket& s : sockets) {
    s.readable = s.writable = false;
    files.push_back(
        {s.file, static_cast<short>((s.for_reading ? POLLIN : 0) | (s.for_writing ? POLLOUT : 0)),
         0});
  }
  files.push_back({wake ? wake->read_end_ : -1, POLLIN, 0});
  // Whoever is interrupted by a signal may as well look around.
  const int n =
      ::poll(files.data(), static_cast<nfds_t>(files.size()), milliseconds_until(deadline));
  if (n < 0 && errno != EINTR) socket_failure("poll: " + system_message(errno));
  if (n <= 0) return;
  for (size_t i = 0; i < sockets.size(); ++i) {
    const bool broken = files[i].revents & (POLLERR | POLLHUP | POLLNVAL);
    sockets[i].readable = broken || (files[i].revents & POLLIN);
    sockets[i].writable = broken || (files[i].revents & POLLOUT);
  }
  char bytes[64];
  if (files.back().revents)
    while (::read(wake->read_end_, bytes, sizeof(bytes)) > 0) {
    }
}

}  // namespace halftape::os
#else

namespace halftape::os {
namespace {
[[noreturn]] void no_sockets() {
  throw SocketFailure(SocketFailure::Kind::Other, "Halftape has no sockets on this system");
}
}  // namespace

void Socket::close() { file_ = -1; }
uint16_t Socket::port() const { no_sockets(); }
ptrdiff_t Socket::send_some(const void*, size_t) { return -1; }
ptrdiff_t Socket::receive_some(void*, size_t) { return -1; }
void Socket::send_all(const void*, size_t, Deadline) { no_sockets(); }
void Socket::receive_exactly(void*, size_t, Deadline) { no_sockets(); }
void Socket::end_sending() {}
Socket listen_at(uint16_t) { no_sockets(); }
Socket accept_from(const Socket&, int& error) {
  error = ENOSYS;
  return Socket();
}
Socket connect_to(const std::string&, uint16_t, Deadline) { no_sockets(); }
std::string address_towards(const std::string&) { return {}; }
bool is_own_address(const std::string&) { return false; }
Wake::Wake() { no_sockets(); }
Wake::~Wake() = default;
void Wake::notify() noexcept {}
void poll_sockets(std::span<PolledSocket>, Wake*, Deadline) { no_sockets(); }

}  // namespace halftape::os
#endif
