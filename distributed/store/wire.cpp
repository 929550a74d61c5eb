// Messages over a connection.
#include "halftape/distributed/store/wire.h"

#include <array>

namespace halftape::distributed::wire {
namespace {

constexpr size_t kHead = 4;

size_t length_in(const char* head) { return Reader(std::string_view(head, kHead)).number32(); }

std::string with_head(std::string_view message) {
  std::string bytes;
  bytes.reserve(kHead + message.size());
  for (size_t i = 0; i < kHead; ++i) bytes += static_cast<char>(message.size() >> (8 * i) & 0xff);
  return bytes.append(message);
}

}  // namespace

void Channel::send(std::string_view message) {
  if (!is_open()) return;
  unsent_ += with_head(message);
  flush();
}

void Channel::flush() {
  size_t done = 0;
  while (is_open() && done < unsent_.size()) {
    const ptrdiff_t sent = socket_.send_some(unsent_.data() + done, unsent_.size() - done);
    if (sent == 0) break;
    // Of a broken connection receive() tells.
    done = sent < 0 ? unsent_.size() : done + static_cast<size_t>(sent);
  }
  unsent_.erase(0, done);
}

bool Channel::receive() {
  std::array<char, 16384> part;
  while (received_.size() < kHead + longest_) {
    const ptrdiff_t n = socket_.receive_some(part.data(), part.size());
    if (n < 0) return false;
    if (n == 0) return true;
    received_.append(part.data(), static_cast<size_t>(n));
  }
  return true;
}

std::optional<std::string> Channel::next() {
  if (received_.size() < kHead) return std::nullopt;
  const size_t n = length_in(received_.data());
  if (n > longest_) throw Malformed("a message is too long");
  if (received_.size() - kHead < n) return std::nullopt;
  std::string message = received_.substr(kHead, n);
  received_.erase(0, kHead + n);
  return message;
}

void send_message(os::Socket& socket, std::string_view message, os::Deadline deadline) {
  const std::string bytes = with_head(message);
  socket.send_all(bytes.data(), bytes.size(), deadline);
}

std::string receive_message(os::Socket& socket, size_t longest, os::Deadline deadline) {
  std::array<char, kHead> head;
  socket.receive_exactly(head.data(), head.size(), deadline);
  const size_t n = length_in(head.data());
  if (n > longest) throw Malformed("a message is too long");
  std::string message(n, '\0');
  socket.receive_exactly(message.data(), n, deadline);
  return message;
}

}  // namespace halftape::distributed::wire
