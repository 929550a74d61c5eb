#include "halftape/distributed/gloo/wire.h"

#include <algorithm>

#include "halftape/core/check.h"
#include "halftape/core/start_thread.h"
#include "halftape/distributed/engine/mix.h"

namespace halftape::distributed {
namespace {

constexpr uint64_t kEndless = 0x656e646c65737321;
constexpr milliseconds kGlance(20);        // how often the thread looks after a peer
constexpr milliseconds kSleepsAfter(500);  // without anybody who waits
constexpr size_t kFinished = 64;           // messages

}  // namespace

std::string sentence(const std::exception& e) {
  const std::string text = e.what();
  const size_t place = text.starts_with('[') ? text.find("] ") : std::string::npos;
  return place == std::string::npos ? text : text.substr(place + 2);
}

Deadline::Deadline(milliseconds after)
    // Without those for which the clock overflows.
    : timeout(std::clamp<milliseconds>(after, milliseconds(1), std::chrono::hours(24 * 365))),
      until(std::chrono::steady_clock::now() + timeout) {}

milliseconds Deadline::left() const {
  const auto left = until - std::chrono::steady_clock::now();
  return std::max(std::chrono::duration_cast<milliseconds>(left), milliseconds(1));
}

Wire::Wire(std::shared_ptr<gloo::Context> context)
    : context_(std::move(context)), endless_(static_cast<size_t>(context_->size)) {
  if (size() == 1) return;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    auto& endless = endless_[static_cast<size_t>(peer)];
    endless = context_->createUnboundBuffer(&nothing_, 1);
    endless->recv(peer, kEndless);
  }
  watcher_ = detail::start_thread("the thread that looks after the peers", [this] { watch(); });
}

Wire::~Wire() {
  if (!watcher_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  watcher_.join();
}

Wire::Transfer Wire::send(int peer, const void* bytes, size_t size, uint64_t tag) {
  return begin(peer, const_cast<void*>(bytes), size, tag, true);
}

Wire::Transfer Wire::receive(int peer, void* bytes, size_t size, uint64_t tag) {
  return begin(peer, bytes, size, tag, false);
}

Wire::Transfer Wire::begin(int peer, void* bytes, size_t size, uint64_t tag, bool is_send) {
  Transfer transfer{nullptr, peer, is_send};
  if (size == 0) return transfer;
  transfer.buffer = context_->createUnboundBuffer(bytes, size);
  try {
    // The size is part of what meets: for a message that is too long Gloo would end the process.
    const uint64_t slot = mix(tag, size);
    if (is_send)
      transfer.buffer->send(peer, slot);
    else
      transfer.buffer->recv(peer, slot);
  } catch (const std::exception& e) {
    detail::fail("the connection to rank ", peer, " is lost: ", sentence(e));
  }
  return transfer;
}

bool Wire::wait(const Transfer& transfer, milliseconds timeout) {
  return transfer.is_send ? transfer.buffer->waitSend(timeout) : transfer.buffer->waitRecv(timeout);
}

void Wire::finish(Transfer& transfer, const Deadline& deadline) {
  if (!transfer.buffer) return;
  {
    const std::lock_guard lock(mutex_);
    HALFTAPE_CHECK(!closed_, "the connections are closed");
    awaited_ = &transfer;
    if (asleep_) changed_.notify_all();
  }
  std::string why = "rank " + std::to_string(transfer.peer) + " is gone";
  bool done = false, woken = false;
  try {
    done = wait(transfer, deadline.left());
    woken = !done;
    // What came to its end just before the thread woke this one is told apart by a second look.
    if (woken) done = wait(transfer, milliseconds(1));
  } catch (const std::exception& e) {
    if (!woken) why = sentence(e);
  }
  {
    const std::lock_guard lock(mutex_);
    awaited_ = nullptr;
  }
  if (done) {
    if (finished_.size() == kFinished) finished_.pop_front();
    return finished_.push_back(std::move(transfer.buffer));
  }
  if (deadline.is_over())
    detail::fail("rank ", transfer.peer, " has not ", transfer.is_send ? "taken" : "sent",
                 " a message of ", transfer.buffer->size, " bytes within ",
                 deadline.timeout.count(),
                 " ms: it hangs, is in another call, or expects another size or dtype there");
  detail::fail("the connection to rank ", transfer.peer, " is lost: ", why);
}

void Wire::close() noexcept {
  closed_ = true;
  if (size() == 1) return;
  try {
    // A wait whose time is over makes Gloo close all connections. Pair::close() would wake nobody.
    char byte = 0;
    context_->createUnboundBuffer(&byte, 1)->waitRecv(milliseconds(1));
  } catch (const std::exception&) {  // NOLINT: that is how it says that the time is over
  }
}

/// Gloo knows no question for this. A wait that has been called off beforehand returns at once, or
/// throws if the connection is lost.
bool Wire::is_lost(int peer) {
  auto& endless = endless_[static_cast<size_t>(peer)];
  try {
    endless->abortWaitRecv();
    endless->waitRecv(milliseconds(1));
    return false;
  } catch (const std::exception&) {  // NOLINT: the answer
    return true;
  }
}

void Wire::watch() {
  std::unique_lock lock(mutex_);
  auto seen = std::chrono::steady_clock::now();
  while (!ends_) {
    const auto now = std::chrono::steady_clock::now();
    if (awaited_) {
      seen = now;
      if (is_lost(awaited_->peer)) {
        awaited_->buffer->abortWaitRecv();
        awaited_->buffer->abortWaitSend();
      }
    }
    asleep_ = now - seen > kSleepsAfter;
    if (asleep_)
      changed_.wait(lock, [&] { return awaited_ || ends_; });
    else
      changed_.wait_for(lock, kGlance);
  }
}

}  // namespace halftape::distributed
